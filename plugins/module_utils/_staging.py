# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Get one model onto the head: from a source, proved against the source's own sums, put in place when it is whole.

Whatever the source, the order is the same: ask it what the model consists of, look what is here already, refuse when
the disk is too small, bring what lacks into a folder beside the model, hash everything, look at the result as the
engine would, and only then rename. The manifest that comes of it is what every other node is held against.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ._mirror_work import Item, Lack, Pool, commit, items, lack, require_space, tidy
from ._model_tree import check
from ._model_tree_deep import cores, settled_sum
from ._model_tree_store import BUILT, MANIFEST_VERSION, Store, is_stale, load_manifest
from ._progress_job import Job, JobError

_ROUNDS: Final = 3
# Not part of a model: what clients and version control keep for themselves.
_PRIVATE: Final = (".cache", ".git")


@dataclass(frozen=True)
class Listing:
    """What a source says that the model consists of: path, size, and sum (sha256, or `git:` and a blob's id)."""

    revision: str
    files: Sequence[tuple[str, int, str]]


class Source(Protocol):
    """Where a model comes from."""

    def listing(self, job: Job) -> Listing:
        """What the model consists of; raises JobError with a cure where that cannot be said."""

    def fetch(self, wanted: Sequence[Item], into: Path, job: Job) -> None:
        """Bring the files, going on where an earlier call was cut."""

    def arrived(self, item: Item) -> int:
        """Bytes of a file that are here, finished or not."""


@dataclass(frozen=True)
class Wanted:
    """One model as the card names it."""

    name: str
    repo: str
    revision: str


class AwaitedError(Exception):
    """The source brings files only after it was told which: these."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(f"{len(paths)} files")
        self.paths = paths


def private(path: str) -> bool:
    """Whether a file is not part of the model."""
    return path.split("/", 1)[0] in _PRIVATE or path.endswith(".incomplete")


def git_sum(data: bytes) -> str:
    """The id that git gives to a file's content."""
    return "git:" + hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _matches(item: Item, path: Path, value: str) -> bool:
    return git_sum(path.read_bytes()) == item.sha256 if item.sha256.startswith("git:") else value == item.sha256


class Stage:
    """One model on its way to the head."""

    def __init__(self, root: str, wanted: Wanted, source: Source, source_name: str, reserve: int, job: Job) -> None:
        self.root = root
        self.wanted = wanted
        self.source = source
        self.source_name = source_name
        self.reserve = reserve
        self.job = job
        self.store = Store(root, wanted.name)
        self._looked = 0

    def run(self) -> dict[str, Any]:
        """Do all that lacks; a model that is whole is only looked at."""
        known = load_manifest(self.store.manifest)
        if is_stale(known, self.wanted.revision):
            known = {}
        if not known and check(self.store.tree).complete and not load_manifest(self.store.manifest):
            return self._adopt()
        if known:
            listing = Listing(known["revision"], [(f["path"], f["size"], f["sha256"]) for f in known["files"]])
        else:
            self.job.meter.phase(f"asking {self.source_name}", 0)
            listing = self.source.listing(self.job)
        provisional = self._manifest(listing.revision, listing.files)
        part = lack(self.store, provisional)
        part.bring += self._look(part)
        if part.bring and (made := str(known.get("source") or "")).startswith(BUILT):
            names = ", ".join(item.path for item in part.bring[:3])
            cure = "build it again with playbooks/build_draft.yml, or remove the folder to stage the card's draft"
            raise JobError(f"{self.store.tree}: {names}: absent or damaged; it was {made} on this node: {cure}")
        moved = self._bring(part)
        manifest = known or self._manifest(listing.revision, self._sums(part))
        self._inspect(manifest)
        changed = commit(self.store, manifest)
        return {"name": self.store.name, "changed": changed, "moved": moved, "manifest": manifest}

    def _manifest(self, revision: str, files: Sequence[tuple[str, int, str]]) -> dict[str, Any]:
        entries = [{"path": path, "size": size, "sha256": value} for path, size, value in sorted(files)]
        return {
            "version": MANIFEST_VERSION,
            "name": self.wanted.name,
            "repo": self.wanted.repo,
            "revision": revision or self.wanted.revision,
            "source": self.source_name,
            "files": entries,
        }

    def _hash_all(self, work: Sequence[tuple[Item, Path]], found: Callable[[Item, Path, str, list[int]], None]) -> None:
        """Hash files on all cores and tell each sum."""
        pool = Pool(self.job.stop)
        self._looked = 0
        self.job.meter.phase("checking", sum(item.size for item, _unused in work))

        def one(item: Item, path: Path) -> None:
            value, stamp = settled_sum(path, self.job.meter.add)
            found(item, path, value, stamp)

        with ThreadPoolExecutor(cores()) as executor:
            for item, path in work:
                pool.submit(executor, one, item, path)
            pool.wait(self.job.meter.publish)
        if self.job.stop.is_set():
            raise JobError("stopped before everything was checked: run again to go on")

    def _look(self, part: Lack) -> list[Item]:
        """Hash what is here and was not hashed yet; returns what is not the file that it should be."""
        bad: list[Item] = []

        def found(item: Item, path: Path, value: str, stamp: list[int]) -> None:
            if _matches(item, path, value):
                part.seen.add(item, stamp)
                return
            part.seen.forget(item)
            if path == item.here:
                path.unlink()
            bad.append(item)

        if part.check:
            self._hash_all(part.check, found)
            part.seen.save()
        return bad

    def _bring(self, part: Lack) -> int:
        """Fetch and prove, at most a few rounds: what is wrong after that is wrong at the source."""
        total = sum(item.size for item in part.bring)
        wanted = list(part.bring)
        for _unused in range(_ROUNDS):
            if not wanted:
                return total
            require_space(self.root, [Lack(self.store, part.manifest, part.seen, bring=wanted)], self.reserve)
            whole = sum(item.size for item in wanted)
            self.job.meter.phase(f"from {self.source_name}", whole, sum(map(self.source.arrived, wanted)))
            self.source.fetch(wanted, self.store.incoming, self.job)
            for item in wanted:
                if not item.here.is_file() or item.here.stat().st_size != item.size:
                    found = f"{item.arrived()} bytes" if item.here.is_file() else "nothing"
                    raise JobError(f"{self.source_name}: {item.path}: {found} came, {item.size} bytes were announced")
            part.check = [(item, item.here) for item in wanted]
            wanted = self._look(part)
        names = ", ".join(item.path for item in wanted[:3])
        raise JobError(f"{self.source_name}: {names}: not what its sum says, also after {_ROUNDS} tries")

    def _sums(self, part: Lack) -> list[tuple[str, int, str]]:
        """sha256 of every file, also of those that the source names by another sum."""
        result = []
        for item in items(self.store, part.manifest):
            value = item.sha256
            if value.startswith("git:"):
                value, stamp = settled_sum(item.here if item.here.is_file() else item.final)
                part.seen.add(Item(self.store, item.path, item.size, value), stamp)
            result.append((item.path, item.size, value))
        part.seen.save()
        return result

    def _inspect(self, manifest: Mapping[str, Any]) -> None:
        """A new model is looked at before it gets its name: a source can be incomplete in itself."""
        if self.store.tree.exists():
            return
        tidy(self.store, manifest)
        found = check(self.store.incoming, manifest)
        if not found.complete:
            said = "; ".join(
                f"{p['file'] or 'folder'}: {p['found']}, expected {p['expected']}" for p in found.problems[:5]
            )
            raise JobError(
                f"{self.source_name} gave a model that is not complete ({len(found.problems)} faults): {said}"
            )

    def _adopt(self) -> dict[str, Any]:
        """A complete folder that somebody else put here becomes the one to mirror: hash it, change nothing in it."""
        tree = check(self.store.tree)
        names = [name for name in tree.files if not private(name)]
        provisional = self._manifest("", [(name, tree.files[name].size, "") for name in names])
        self.source_name = provisional["source"] = "found here"
        part = lack(self.store, provisional)
        sums: dict[str, tuple[str, list[int]]] = {}

        def found(item: Item, _path: Path, value: str, stamp: list[int]) -> None:
            sums[item.path] = (value, stamp)
            part.seen.add(Item(self.store, item.path, item.size, value), stamp)

        known = {item.path: part.seen.sum_of(item) for item in items(self.store, provisional)}
        self._hash_all([(i, i.final) for i in items(self.store, provisional) if not known[i.path]], found)
        part.seen.save()
        files = [(n, tree.files[n].size, known[n] or sums[n][0]) for n in names]
        manifest = self._manifest("", files)
        commit(self.store, manifest)
        return {"name": self.store.name, "changed": True, "moved": 0, "manifest": manifest}


def stage(
    root: str,
    models: Sequence[tuple[Wanted, Source, str]],
    reserve: int,
    job: Job,
    accept: Callable[[str], None] = lambda _name: None,
) -> dict[str, Any]:
    """All models, one after the other. `awaiting` names the files that the controller has to send first.

    `accept` is asked after each model and raises where going on makes no sense: a draft that cannot be used is found
    before the large target is fetched.
    """
    results, awaiting = [], {}
    for wanted, source, source_name in models:
        job.meter.title(f"staging {wanted.name}")
        try:
            results.append(Stage(root, wanted, source, source_name, reserve, job).run())
            accept(wanted.name)
        except AwaitedError as error:
            awaiting[wanted.name] = error.paths
    return {
        "changed": any(item["changed"] for item in results),
        "moved": sum(item["moved"] for item in results),
        "models": [{key: item[key] for key in ("name", "changed", "moved")} for item in results],
        "awaiting": awaiting,
    }
