# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Where a node keeps what it knows of its models, beside the models themselves.

    <root>/<name>/                     the model, as the engine reads it
    <root>/.dgx-spark-vllm/<name>/
        manifest.json                  what it must be: made on the head, the same bytes on every node
        seen.json                      what this node hashed: size, time and inode at that moment, and the sum
        incoming/                      what is on its way, never what a running engine has open
        offered/                   during a mirror run, where the model is made of links: the files they lead to

A folder without a manifest was not staged by us: it is used and mirrored, and never removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ._model_tree_types import read_json

STORE: Final = ".dgx-spark-vllm"
MANIFEST_VERSION: Final = 1
# How the source of a draft that was made here begins in its manifest.
BUILT: Final = "built from "
COMMIT: Final = re.compile(r"^[0-9a-f]{40}$")


def jobs_folder(root: str | os.PathLike[str]) -> Path:
    """Where long work on the models of a root keeps its files."""
    return Path(root) / STORE / ".jobs"


class Store:
    """The paths of one model on one node."""

    def __init__(self, root: str | os.PathLike[str], name: str) -> None:
        if not name or name.startswith(".") or "/" in name:
            raise ValueError(f"model folder {name!r}: expected a plain name")
        self.root = Path(root)
        self.name = name
        self.tree = self.root / name
        self.home = self.root / STORE / name
        self.manifest = self.home / "manifest.json"
        self.seen = self.home / "seen.json"
        self.incoming = self.home / "incoming"
        self.offered = self.home / "offered"


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all, also through a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        Path(aside).replace(path)
        sync_folder(path.parent)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Make renames in a folder last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def encode(value: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest: the same for the same content, so that nodes compare one sum."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def digest(manifest: Mapping[str, Any] | None) -> str:
    """The sum by which two nodes know that they have the same manifest; empty for none."""
    return hashlib.sha256(encode(manifest)).hexdigest() if manifest else ""


def load(path: Path) -> dict[str, Any]:
    """A JSON object of ours, or an empty one: what cannot be read is made anew."""
    try:
        return read_json(path)
    except ValueError:
        return {}


def sound(manifest: Mapping[str, Any]) -> bool:
    """Whether it is a manifest: every file with a size and a sum, none of them outside the folder."""
    files = manifest.get("files")
    if manifest.get("version") != MANIFEST_VERSION or not isinstance(files, list):
        return False
    return all(
        isinstance(item, dict)
        and isinstance(item.get("path"), str)
        and isinstance(item.get("size"), int)
        and isinstance(item.get("sha256"), str)
        and {"", ".", ".."}.isdisjoint(item["path"].split("/"))
        and "\0" not in item["path"]
        for item in files
    )


def load_manifest(path: Path) -> dict[str, Any]:
    """A manifest that can be relied on, or an empty dict."""
    found = load(path)
    return found if sound(found) else {}


def is_stale(manifest: Mapping[str, Any], revision: str) -> bool:
    """Whether what is here was staged for another commit than the one that is pinned."""
    return bool(COMMIT.match(revision)) and manifest.get("revision") not in ("", None, revision)


def disk_free(root: str) -> int:
    """Bytes that this user can still write below the root, which need not exist yet."""
    path = Path(root)
    while not path.exists() and path != path.parent:
        path = path.parent
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
