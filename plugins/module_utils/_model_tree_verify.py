# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The deep check: every file against its sum, on all cores, going on where an earlier check was cut.

The sums are those of a manifest, else those that the hub's own client left: it names blobs of its cache, and notes of
files in a folder, by the sum of their content.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from ._mirror_work import Item, Pool, Seen
from ._model_tree import check
from ._model_tree_deep import cores, settled_sum
from ._model_tree_store import STORE, Store, digest, encode, load, load_manifest, write_atomic
from ._model_tree_types import Problem, Tree, problem
from ._progress_job import Job, JobError
from ._staging import git_sum, private

_SHA256: Final = re.compile(r"^[0-9a-f]{64}$")
_SHA1: Final = re.compile(r"^[0-9a-f]{40}$")
_NOTES: Final = ".cache/huggingface/download"


def _sum_of_etag(etag: str) -> str:
    if _SHA256.match(etag):
        return etag
    return f"git:{etag}" if _SHA1.match(etag) else ""


def hub_sums(root: Path, tree: Tree) -> dict[str, str]:
    """Sums that the hub's client left for the files of a tree."""
    found = {}
    for name, entry in tree.files.items():
        if private(name):
            continue
        etag = ""
        if entry.linked:
            etag = (root / name).resolve().name
        else:
            try:
                lines = (root / _NOTES / f"{name}.metadata").read_text().splitlines()
            except (OSError, UnicodeDecodeError):
                continue
            etag = lines[1].strip() if len(lines) > 1 else ""
        if value := _sum_of_etag(etag):
            found[name] = value
    return found


def expected_sums(tree: Tree, manifest: Mapping[str, Any] | None) -> tuple[dict[str, str], str]:
    """Sum of each file and where they are from. Raises JobError where nothing says what the files should be."""
    root = Path(tree.path)
    if not manifest and (own := _own_store(root)):
        manifest = load_manifest(own.manifest)
    if manifest:
        return {str(item["path"]): str(item["sha256"]) for item in manifest["files"]}, "the manifest"
    if sums := hub_sums(root, tree):
        return sums, "the hub's notes"
    raise JobError(f"{root}: no manifest and no notes of the hub's client say what its files should be")


def _own_store(root: Path) -> Store | None:
    """The store that a models folder keeps for this model, if there is one."""
    place = root.parent / STORE / root.name
    return Store(root.parent, root.name) if place.is_dir() else None


class Deep:
    """One deep check of one folder."""

    def __init__(self, tree: Tree, sums: Mapping[str, str], origin: str, job: Job) -> None:
        self.root = Path(tree.path)
        self.tree = tree
        self.sums = sums
        self.origin = origin
        self.job = job
        self.problems: list[Problem] = []
        self._store = _own_store(self.root)
        self._seen = Seen(self._store) if self._store else None

    def _since(self) -> float:
        """When this check began, be it in a run before: what was hashed since then need not be again."""
        if self._store is None:
            return time.time()
        marker, wanted = self._store.home / "deep.json", digest(dict(self.sums))
        known = load(marker)
        if known.get("sums") != wanted or not isinstance(known.get("since"), float):
            known = {"sums": wanted, "since": time.time()}
            write_atomic(marker, encode(known))
        return float(known["since"])

    def run(self) -> list[Problem]:
        """Hash what was not hashed since this check began; returns what is wrong."""
        faulty = {item["file"] for item in self.tree.problems}
        since = self._since()
        store = self._store or Store(self.root.parent, self.root.name)
        items = [
            Item(store, name, self.tree.files[name].size, value)
            for name, value in self.sums.items()
            if name in self.tree.files and name not in faulty
        ]
        left = [item for item in items if not (self._seen and self._seen.holds(item, item.final, since))]
        left.sort(key=lambda item: -item.size)
        whole = sum(item.size for item in items)
        self.job.meter.phase("hashing", whole, whole - sum(item.size for item in left))
        pool = Pool(self.job.stop)
        with ThreadPoolExecutor(cores()) as executor:
            for item in left:
                pool.submit(executor, self._one, item)
            pool.wait(self.job.meter.publish)
        if self._seen:
            self._seen.save()
        if self.job.stop.is_set():
            raise JobError("stopped before everything was hashed: run again to go on")
        if self._store:
            (self._store.home / "deep.json").unlink(missing_ok=True)
        return sorted(self.problems, key=lambda found: found["file"])

    def _one(self, item: Item) -> None:
        try:
            value, stamp = settled_sum(item.final, self.job.meter.add)
            if item.sha256.startswith("git:"):
                value = git_sum(item.final.read_bytes())
        except OSError as error:
            found = error.strerror or str(error)
            self.problems.append(problem(item.path, "unreadable", found, "a file that this user can read"))
            return
        if value == item.sha256:
            if self._seen:
                self._seen.add(item, stamp)
            return
        if self._seen:
            self._seen.forget(item)
        found, expected = f"sha256 {value}", f"sha256 {item.sha256}, by {self.origin}"
        self.problems.append(problem(item.path, "wrong_hash", found, expected))


def judge(path: str, manifest: Mapping[str, Any] | None, deep: bool, job: Job) -> dict[str, Any]:
    """The whole judgement of a folder, quick or deep, as a result."""
    tree = check(path, manifest)
    if deep and tree.files:
        sums, origin = expected_sums(tree, manifest)
        tree.problems += Deep(tree, sums, origin, job).run()
    return {
        "complete": tree.complete,
        "problems": [dict(item) for item in tree.problems],
        "bytes": tree.bytes,
        "shards": tree.shards,
        "notes": tree.notes,
    }
