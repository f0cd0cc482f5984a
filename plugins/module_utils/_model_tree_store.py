# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Where a node keeps what it knows of its models, beside the models themselves.

    <root>/<name>/                     the model, as the engine reads it
    <root>/.dgx-spark-vllm/<name>/
        manifest.json                  what it must be: made on the head, the same bytes on every node
        seen.json                      what this node hashed: size, time and inode at that moment, and the sum
        incoming/                      what is on its way, never what a running engine has open

A folder without a manifest was not staged by us: it is used and mirrored, and never removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ._model_tree import check
from ._model_tree_types import Tree, read_json

STORE: Final = ".dgx-spark-vllm"
MANIFEST_VERSION: Final = 1


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


def unseen(tree: Tree, manifest: Mapping[str, Any], seen: Mapping[str, Any]) -> list[str]:
    """Files of the manifest that are here in the right size, but are not those that this node hashed."""
    names = []
    for item in manifest.get("files", []):
        entry, known = tree.files.get(item["path"]), seen.get(item["path"])
        if entry is None or entry.size != item["size"]:
            continue
        stamp = [entry.size, entry.mtime_ns, entry.ino]
        if not isinstance(known, dict) or known.get("stat") != stamp or known.get("sha256") != item["sha256"]:
            names.append(item["path"])
    return names


def _bytes_of(manifest: Mapping[str, Any]) -> int:
    return sum(int(item["size"]) for item in manifest.get("files", []))


def state(root: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What this node has of one model. wanted: name, and from the card repo, revision and bytes.

    `to_move` is what is still to be written here, in bytes: by the manifest where there is one, by the card otherwise.
    """
    store = Store(root, str(wanted["name"]))
    manifest = load_manifest(store.manifest)
    tree = check(store.tree, manifest)
    faulty = {item["file"] for item in tree.problems}
    total = _bytes_of(manifest) or int(wanted.get("bytes") or 0)
    good = sum(entry.size for name, entry in tree.files.items() if name not in faulty)
    arrived = sum(path.stat().st_size for path in store.incoming.rglob("*") if path.is_file())
    return {
        "name": store.name,
        "path": str(store.tree),
        "present": store.tree.is_dir(),
        "complete": tree.complete,
        "problems": [dict(item) for item in tree.problems],
        "notes": tree.notes,
        "bytes": tree.bytes,
        "shards": tree.shards,
        "manifest": digest(manifest),
        "repo": str(manifest.get("repo") or ""),
        "revision": str(manifest.get("revision") or ""),
        "unseen": unseen(tree, manifest, load(store.seen)),
        "arrived": arrived,
        "to_move": 0 if tree.complete else max(total - good - arrived, 0),
    }


def disk_free(root: str) -> int:
    """Bytes that this user can still write below the root, which need not exist yet."""
    path = Path(root)
    while not path.exists() and path != path.parent:
        path = path.parent
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
