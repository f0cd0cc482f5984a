# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What a node has of its models, in one look: whole or not, proved or not, how much is still to come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._draft_check import PROVENANCE, check_draft
from ._model_tree import check, check_manifest, read_config, scan
from ._model_tree_store import Store, digest, is_stale, load, load_manifest
from ._model_tree_types import SHARD, Tree
from ._progress_job import JobError
from ._report import Fault, fault
from ._safetensors import Header, HeaderError, read_header


@dataclass(frozen=True)
class Local:
    """One model on this node."""

    store: Store
    manifest: dict[str, Any]
    tree: Tree
    unseen: list[str]


def _unseen(tree: Tree, manifest: Mapping[str, Any], seen: Mapping[str, Any]) -> list[str]:
    """Files of the manifest that are here in the right size, but are not those that this node hashed."""
    names = []
    for item in manifest.get("files", []):
        entry, known = tree.files.get(item["path"]), seen.get(item["path"])
        if entry is None or entry.size != item["size"]:
            continue
        stamp = [entry.size, entry.mtime_ns, entry.ino]
        if not isinstance(known, dict) or known.get("stat") != stamp or known.get("sha256") != item["sha256"]:
            names.append(str(item["path"]))
    return names


def look(root: str, name: str) -> Local:
    """Look at a model. One whose files are all as they were when they were hashed is not opened again."""
    store = Store(root, name)
    manifest = load_manifest(store.manifest)
    tree = Tree(path=str(store.tree))
    if manifest and store.tree.is_dir():
        scan(store.tree, tree)
        read_config(store.tree, tree)
        check_manifest(tree, manifest)
    unseen = _unseen(tree, manifest, load(store.seen))
    if not manifest or not tree.files or tree.problems or unseen:
        tree = check(store.tree, manifest)
        unseen = _unseen(tree, manifest, load(store.seen))
    return Local(store, manifest, tree, unseen)


def _state(local: Local, wanted: Mapping[str, Any]) -> dict[str, Any]:
    store, manifest, tree = local.store, local.manifest, local.tree
    faulty = {item["file"] for item in tree.problems}
    total = sum(int(item["size"]) for item in manifest.get("files", [])) or int(wanted.get("bytes") or 0)
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
        "files": {str(item["path"]): [item["size"], item["sha256"]] for item in manifest.get("files", [])},
        "repo": str(manifest.get("repo") or ""),
        "revision": str(manifest.get("revision") or ""),
        "source": str(manifest.get("source") or ""),
        "unseen": local.unseen,
        "arrived": arrived,
        "to_move": 0 if tree.complete else max(total - good - arrived, 0),
    }


def _headers(local: Local) -> dict[str, Header]:
    """Headers of a small model, read where the look did not need them."""
    found = {}
    for name in local.tree.files:
        if name.endswith(SHARD):
            try:
                found[name] = local.tree.headers.get(name) or read_header(local.store.tree / name)
            except (HeaderError, OSError):
                return {}
    return found


def states(root: str, wanted: Sequence[Mapping[str, Any]], speculative: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What this node has of each model. A DFlash draft that is here is held against the target's config.

    wanted: name, and from the card role and bytes; speculative: method, depth, trained_for, as the card has them.
    `to_move` is what is still to be written, in bytes: by the manifest where there is one, by the card otherwise.
    """
    found = [(model, look(root, str(model["name"]))) for model in wanted]
    target = next((local.tree.config for model, local in found if model.get("role") == "target"), {})
    result = []
    for model, local in found:
        state = _state(local, model)
        drafts = model.get("role") == "draft" and speculative.get("method") == "dflash"
        # One of another revision than the card pins is replaced, whatever it is.
        if drafts and local.tree.complete and not is_stale(local.manifest, str(model.get("revision") or "")):
            depth, trained_for = int(speculative.get("depth") or 0), speculative.get("trained_for") or None
            provenance = load(Path(state["path"]) / PROVENANCE)
            state["draft_faults"] = check_draft(
                local.tree.config, _headers(local), target, depth, provenance, trained_for
            )
        result.append(state)
    return result


def draft_errors(host: str, found: Iterable[Mapping[str, Any]]) -> list[Fault]:
    """What a host's drafts have against being served, for a report."""
    return [
        fault(host, f"{model['name']}/{item['file']}", item["found"], item["expected"], item["cure"])
        for model in found
        for item in model.get("draft_faults") or []
    ]


def require_draft(root: str, wanted: Sequence[Mapping[str, Any]], speculative: Mapping[str, Any], name: str) -> None:
    """Raise JobError where the named model is a draft that cannot be used; the target need not be here yet."""
    found = next(state for state in states(root, wanted, speculative) if state["name"] == name)
    if faults := found.get("draft_faults"):
        lines = [f"{name}/{f['file']}: {f['found']}; expected {f['expected']}; {f['cure']}" for f in faults]
        raise JobError(f"the draft cannot be used ({len(faults)} faults):\n" + "\n".join(lines))
