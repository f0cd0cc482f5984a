# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""All models of a node, who uses them, and the removal of those that nobody does."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ._model_tree_state import look
from ._model_tree_store import STORE, Store, disk_free, sync_folder
from ._progress import human

TRASH: Final = ".trash"
ADOPTED: Final = "found here"


def _names(root: Path) -> list[str]:
    """Folders of models, and models of which only our own files are left."""
    found = set()
    for folder in (root, root / STORE):
        if folder.is_dir():
            found |= {path.name for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir()}
    return sorted(found)


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def listing(root: str) -> list[dict[str, Any]]:
    """Every model below a root: size, whole or not, what it was staged from, and whether we may remove it."""
    result = []
    for name in _names(Path(root)):
        local = look(root, name)
        manifest, store = local.manifest, local.store
        result.append(
            {
                "name": name,
                "bytes": local.tree.bytes,
                "arriving": _bytes_below(store.incoming),
                "complete": local.tree.complete,
                "problems": len(local.tree.problems),
                "proved": bool(manifest) and local.tree.complete and not local.unseen,
                "repo": str(manifest.get("repo") or ""),
                "revision": str(manifest.get("revision") or ""),
                "source": str(manifest.get("source") or ""),
                "staged": is_ours(store, manifest),
            }
        )
    return result


def is_ours(store: Store, manifest: Mapping[str, Any]) -> bool:
    """Whether we put it there: by its manifest, or because there is nothing but what we had begun to bring."""
    if manifest:
        return str(manifest.get("source") or "") != ADOPTED
    return not store.tree.exists() and store.home.is_dir()


def unused(models: Iterable[Mapping[str, Any]], keep: Sequence[str]) -> list[str]:
    """What may be removed: staged by us and used by no card."""
    return [str(model["name"]) for model in models if model["staged"] and model["name"] not in keep]


def prune(root: str, names: Sequence[str]) -> int:
    """Remove models; returns the bytes that came free. Each is gone by one rename before its files are deleted."""
    trash = Path(root) / STORE / TRASH
    before = disk_free(root)
    for name in names:
        store = Store(root, name)
        trash.mkdir(parents=True, exist_ok=True)
        for path in (store.tree, store.home):
            if path.is_symlink():
                path.unlink()
            elif path.exists():
                aside = trash / f"{name}.{path.parent.name.strip('.') or 'models'}"
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
        sync_folder(Path(root))
    shutil.rmtree(trash, ignore_errors=True)
    return max(disk_free(root) - before, 0)


def table(hosts: Mapping[str, Sequence[Mapping[str, Any]]], used: Mapping[str, Sequence[str]]) -> list[str]:
    """All models of all nodes as lines: one a model, with its state on each node."""
    names = sorted({str(model["name"]) for models in hosts.values() for model in models})
    rows = [["model", "size", *hosts, "revision", "cards"]]
    for name in names:
        here = {host: next((m for m in models if m["name"] == name), None) for host, models in hosts.items()}
        known = [model for model in here.values() if model]
        size = max(int(model["bytes"]) for model in known)
        revisions = sorted({str(model["revision"])[:12] for model in known if model["revision"]})
        states = [_word(model) for model in here.values()]
        rows.append([name, human(size), *states, " ".join(revisions) or "-", " ".join(used.get(name, ())) or "-"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _word(model: Mapping[str, Any] | None) -> str:
    if model is None:
        return "-"
    if model["arriving"] and not model["bytes"]:
        return f"arriving ({human(model['arriving'])})"
    if not model["complete"]:
        return f"incomplete ({model['problems']})"
    return "proved" if model["proved"] else "complete"
