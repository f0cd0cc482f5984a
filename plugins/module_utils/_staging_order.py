# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""From the inventory's description of a source to the source itself; what is missing in it is said, not guessed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from . import _staging_hub_client
from ._model_tree_store import COMMIT, Store, load_manifest, write_atomic
from ._progress_job import JobError
from ._staging import Source, Wanted
from ._staging_hub import IGNORE, Hub
from ._staging_sources import Folder, Host, Pushed, Urls

KEYS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    # type: (needed, possible)
    "hub": (frozenset(), frozenset({"endpoint", "ignore", "workers", "python"})),
    "controller": (frozenset({"path"}), frozenset()),
    "pushed": (frozenset({"files"}), frozenset()),
    "folder": (frozenset({"path"}), frozenset()),
    "nfs": (frozenset({"path"}), frozenset()),
    "host": (frozenset({"address", "path"}), frozenset({"user", "key", "port"})),
    "urls": (frozenset({"files"}), frozenset()),
}


def check_source(source: Mapping[str, Any]) -> None:
    """Every key is one that the type knows, and none is missing."""
    kind = str(source.get("type") or "")
    if kind not in KEYS:
        raise JobError(f"models_source: type {kind!r}: expected one of {', '.join(sorted(set(KEYS) - {'pushed'}))}")
    needed, possible = KEYS[kind]
    given = {key for key, value in source.items() if value is not None} - {"type"}
    if lacking := needed - given:
        raise JobError(f"models_source: type {kind} needs {', '.join(sorted(lacking))}")
    if unknown := given - needed - possible:
        known = ", ".join(sorted(needed | possible)) or "no further key"
        raise JobError(f"models_source: type {kind} does not know {', '.join(sorted(unknown))}; it knows {known}")


def of_model(listed: Any, name: str) -> list[Mapping[str, Any]]:
    """`files` holds one list for each model."""
    files = listed.get(name) if isinstance(listed, Mapping) else None
    if not files:
        raise JobError(f"models_source: files has no list for {name}")
    for entry in files:
        if lacking := {"path", "url", "sha256"} - set(entry):
            raise JobError(f"models_source: files of {name}: an entry without {', '.join(sorted(lacking))}")
    return list(files)


def make_source(
    source: Mapping[str, Any], wanted: Wanted, root: str, folder: Path, hub_python: str, token_file: str
) -> tuple[Source, str]:
    """The source of one model and how it is called in messages and in the manifest."""
    check_source(source)
    kind, path = str(source["type"]), f"{source.get('path') or ''}/{wanted.name}"
    if kind == "hub":
        if not wanted.repo:
            raise JobError(f"{wanted.name}: the card names no repository")
        known = load_manifest(Store(root, wanted.name).manifest)
        revision = wanted.revision if COMMIT.match(wanted.revision) else str(known.get("revision") or wanted.revision)
        client = folder / "hub_client.py"
        write_atomic(client, inspect.getsource(_staging_hub_client).encode())
        python = str(source.get("python") or hub_python)
        if not Path(python).exists():
            raise JobError(f"{python or 'the engine'} is not there: the hub client runs in the engine's environment")
        hub = Hub(
            wanted.repo,
            revision,
            python,
            client,
            token_file,
            str(source.get("endpoint") or ""),
            source.get("ignore") or IGNORE,
            int(source.get("workers") or 8),
        )
        return hub, f"hub {wanted.repo}"
    if kind in ("folder", "nfs"):
        return Folder(path, mounted=kind == "nfs"), f"{kind} {path}"
    if kind == "host":
        user, key, port = str(source.get("user") or ""), str(source.get("key") or ""), int(source.get("port") or 22)
        return Host(str(source["address"]), path, user, key, port), f"host {source['address']}:{path}"
    if kind == "urls":
        return Urls(of_model(source["files"], wanted.name)), "addresses of the inventory"
    if kind == "pushed":
        return Pushed(source["files"].get(wanted.name) or []), "controller"
    raise JobError("models_source: type controller is for the role; the controller sends the files itself")
