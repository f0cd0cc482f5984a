# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What a node still lacks of the models that a manifest describes, and how what came is put in place."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ._model_tree_store import Store, digest, disk_free, encode, load, load_manifest, sync_folder, write_atomic
from ._progress import human
from ._progress_job import JobError, boot_id

# Files below this size travel together, as many as make one load.
SMALL: Final = 8 << 20
_LOAD: Final = 64 << 20
_LOAD_FILES: Final = 500


@dataclass(frozen=True)
class Item:
    """One file of one model."""

    store: Store
    path: str
    size: int
    sha256: str

    @property
    def here(self) -> Path:
        """Where it arrives."""
        return self.store.incoming / self.path

    @property
    def final(self) -> Path:
        """Where the engine reads it."""
        return self.store.tree / self.path

    def arrived(self) -> int:
        """Bytes of it that are in the incoming folder."""
        try:
            return min(self.here.stat().st_size, self.size)
        except OSError:
            return 0


class Seen:
    """What this node hashed: by size, time and inode, so that a file that was touched is hashed again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._boot = boot_id()
        self._known: dict[str, Any] = load(store.seen)
        self._written = time.monotonic()

    def holds(self, item: Item, path: Path, since: float = 0.0) -> bool:
        """Whether the file at the path was found to be the item, not earlier than `since`."""
        known = self._known.get(item.path)
        try:
            stamp = stat_stamp(path)
        except OSError:
            return False
        if not isinstance(known, dict) or known.get("stat") != stamp or known.get("sha256") != item.sha256:
            return False
        if path != item.final and known.get("boot") != self._boot:
            # It was hashed in the page cache; whether it reached the disk before the machine went down is unknown.
            return False
        return float(known.get("at") or 0) >= since

    def sum_of(self, item: Item) -> str:
        """The sum of the item's file in the model's folder, where it was hashed and not touched since."""
        known = self._known.get(item.path)
        stamp = known.get("stat") if isinstance(known, dict) else None
        return str(known["sha256"]) if known and stamp == stat_stamp(item.final) else ""

    def add(self, item: Item, stamp: list[int]) -> None:
        """The file is the item; kept on disk now and then, so that work that is cut is not done again."""
        with self._lock:
            self._known[item.path] = {"stat": stamp, "sha256": item.sha256, "at": time.time(), "boot": self._boot}
            due = time.monotonic() - self._written > 2.0
        if due:
            self.save()

    def forget(self, item: Item) -> None:
        """The file is not the item."""
        with self._lock:
            self._known.pop(item.path, None)

    def save(self) -> None:
        """Write all of it."""
        with self._lock:
            self._written = time.monotonic()
            data = encode(self._known)
        write_atomic(self._store.seen, data)


def stat_stamp(path: Path) -> list[int]:
    """What changes when a file's content is written."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


@dataclass
class Lack:
    """What is to be done for one model: files to look into, files to bring."""

    store: Store
    manifest: Mapping[str, Any]
    seen: Seen
    check: list[tuple[Item, Path]] = field(default_factory=list)
    bring: list[Item] = field(default_factory=list)


def items(store: Store, manifest: Mapping[str, Any]) -> list[Item]:
    """The files of a manifest, the largest first: the same order on every node."""
    files = sorted(manifest["files"], key=lambda item: (-int(item["size"]), item["path"]))
    return [Item(store, item["path"], int(item["size"]), item["sha256"]) for item in files]


def _claim_incoming(store: Store, manifest: Mapping[str, Any]) -> None:
    """What an older manifest left behind is of no use for this one; a link there would lead writes astray."""
    claim = store.home / "incoming.json"
    wanted = digest({"files": manifest["files"]})
    if load(claim).get("files") != wanted or store.incoming.is_symlink():
        if store.incoming.is_symlink():
            store.incoming.unlink()
        shutil.rmtree(store.incoming, ignore_errors=True)
    store.incoming.mkdir(parents=True, exist_ok=True)
    write_atomic(claim, encode({"files": wanted}))


def lack(store: Store, manifest: Mapping[str, Any], since: float = 0.0) -> Lack:
    """Compare what is here with the manifest; nothing is read but names, sizes and what was hashed before."""
    _claim_incoming(store, manifest)
    result = Lack(store, manifest, Seen(store))
    for item in items(store, manifest):
        if result.seen.holds(item, item.final, since):
            continue
        here = item.here
        if here.is_symlink() or (here.is_file() and (here.stat().st_size > item.size or here.stat().st_nlink > 1)):
            here.unlink()
        with contextlib.suppress(OSError):
            if item.final.stat().st_size == item.size and not here.exists():
                result.check.append((item, item.final))
                continue
        if item.arrived() == item.size and here.is_file():
            if not result.seen.holds(item, here):
                result.check.append((item, here))
        else:
            result.bring.append(item)
    return result


def require_space(root: str, lacks: Sequence[Lack], reserve: int) -> None:
    """Say no before the first byte where the disk is too small (C73)."""
    wanted = sum(item.size - item.arrived() for part in lacks for item in part.bring)
    free = disk_free(root)
    if wanted and wanted + reserve > free:
        raise JobError(
            f"{root} has {human(free)} free; {human(wanted)} are to be brought and {human(reserve)} shall stay free: "
            "make room, or choose another models_root"
        )


def loads(bring: Iterable[Item]) -> list[list[Item]]:
    """Large files alone, small ones of one model together."""
    result: list[list[Item]] = []
    filling: dict[str, list[Item]] = {}
    for item in bring:
        if item.size >= SMALL:
            result.append([item])
            continue
        load_ = filling.get(item.store.name)
        if load_ is None or len(load_) >= _LOAD_FILES or sum(i.size for i in load_) + item.size > _LOAD:
            load_ = filling[item.store.name] = []
            result.append(load_)
        load_.append(item)
    return result


def commit(store: Store, manifest: Mapping[str, Any]) -> bool:
    """Put what came in place and the manifest beside it; True where something changed.

    A new model appears by one rename. In one that is there, file after file is replaced by rename, so that an engine
    that has the old one open keeps it. Every file must have been proved before; one that was not is an error.
    """
    seen = Seen(store)
    wanted = items(store, manifest)
    missing = [i.path for i in wanted if not seen.holds(i, i.here) and not seen.holds(i, i.final)]
    if missing:
        raise JobError(f"{store.tree}: {missing[0]} and {len(missing) - 1} more are not here or not proved: run again")
    changed = False
    older = load_manifest(store.manifest)
    tidy(store, manifest)
    names = {item.path for item in wanted}
    if not store.tree.exists() and store.incoming.is_dir():
        store.incoming.rename(store.tree)
        changed = True
    for item in wanted:
        if item.here.is_file() and seen.holds(item, item.here):
            item.final.parent.mkdir(parents=True, exist_ok=True)
            item.here.replace(item.final)
            changed = True
    for gone in (str(entry["path"]) for entry in older.get("files", [])):
        if gone not in names and (store.tree / gone).is_file():
            (store.tree / gone).unlink()
            changed = True
    shutil.rmtree(store.incoming, ignore_errors=True)
    (store.home / "incoming.json").unlink(missing_ok=True)
    sync_folder(store.tree)
    sync_folder(store.root)
    if digest(older) != digest(manifest):
        write_atomic(store.manifest, encode(manifest))
        changed = True
    return changed


def tidy(store: Store, manifest: Mapping[str, Any]) -> None:
    """Remove from the incoming folder what movers keep there for themselves, or left half done when killed."""
    names = {str(item["path"]) for item in manifest["files"]}
    for path in sorted(store.incoming.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):
                path.rmdir()
        elif str(path.relative_to(store.incoming)) not in names:
            path.unlink()


class Pool:
    """Work on several executors, some of which makes more work; the first fault ends all of it."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._open = 0
        self._idle = threading.Condition()
        self.fault: BaseException | None = None

    def submit(self, executor: Executor, work: Callable[..., None], *arguments: Any) -> None:
        """Queue a call; once the stop is set, queued calls come to nothing."""
        with self._idle:
            self._open += 1

        def run() -> None:
            try:
                if not self._stop.is_set():
                    work(*arguments)
            except BaseException as error:
                self.fail(error)
            finally:
                with self._idle:
                    self._open -= 1
                    self._idle.notify_all()

        executor.submit(run)

    def fail(self, error: BaseException) -> None:
        """Keep the first fault and end the rest."""
        with self._idle:
            self.fault = self.fault or error
        self._stop.set()

    def wait(self, tick: Callable[[], None]) -> None:
        """Until nothing is open, calling `tick` twice a second; raises the first fault."""
        while True:
            with self._idle:
                if self._idle.wait_for(lambda: self._open == 0, 0.5):
                    break
            tick()
        tick()
        if self.fault:
            raise self.fault
