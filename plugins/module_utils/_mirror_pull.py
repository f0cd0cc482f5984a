# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Bring the files of models from the peers, several streams at once, and prove them against the head's manifest.

What arrives goes to the model's `incoming` folder, never to a file that an engine may have open. A large file is
continued where it was cut. In a chain of receivers each takes from the one before it what that one has so far, so that
the head sends everything once, whatever the number of nodes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ._mirror_rsync import NOT_THERE, Outcome, Rails, call, daemon_options, remote_shell_options
from ._mirror_serve import USER
from ._mirror_work import SMALL, Item, Lack, Pool, lack, loads, require_space
from ._model_tree_deep import cores, settled_sum
from ._model_tree_store import Store, write_atomic
from ._progress_job import Job, JobError

# From one call to the next for a load of a node that is receiving itself: the time that each node of a chain adds. A
# call costs two processes here and two there.
_CYCLE_S: Final = 0.3
# After a connection that failed.
_PAUSE_S: Final = 1.0
# Nothing new from the node before in the chain for so long, and the head is asked instead.
_CHAIN_PATIENCE_S: Final = 15.0
# Continued, mended block by block, and brought anew: what still differs then is wrong at its source.
_APPEND, _MEND, _ANEW = range(3)


@dataclass(frozen=True)
class Source:
    """A node that has the models, or is getting them itself (`chained`)."""

    host: str
    addresses: Sequence[str]
    port: int
    chained: bool = False


@dataclass(frozen=True)
class Order:
    """What one node shall bring, and from where: the last source is the head."""

    root: str
    manifests: Mapping[str, Mapping[str, Any]]
    sources: Sequence[Source]
    secret: str
    folder: Path
    streams: int = 0
    reserve: int = 0
    patience_s: float = 120.0
    bandwidth: int = 0
    # A remote shell instead of the daemons: paths are then relative to the folder that its key opens.
    shell: str = ""


class Pull:
    """One run of an order."""

    def __init__(self, order: Order, job: Job) -> None:
        self.order = order
        self.job = job
        self.streams = order.streams or max(2, min(8, cores() // 2))
        self.mended: list[str] = []
        self._password = order.folder / "mirror.secret"
        self._pool = Pool(job.stop)
        self._movers = ThreadPoolExecutor(self.streams)
        self._hashers = ThreadPoolExecutor(cores())
        self._lacks: list[Lack] = []
        self._moving = 0
        self._looked = 0
        self._lock = threading.Lock()
        self._last_error = ""
        self._high = 0
        self._advanced = time.monotonic()
        self._rails = Rails()
        self._left: set[str] = set()
        self._moved_at = 0.0

    def run(self) -> dict[str, Any]:
        """Bring and prove everything; what is there already is only looked at."""
        started = time.monotonic()
        self.job.meter.phase("comparing", 0)
        self._lacks = [lack(Store(self.order.root, name), m) for name, m in self.order.manifests.items()]
        require_space(self.order.root, self._lacks, self.order.reserve)
        write_atomic(self._password, (self.order.secret + "\n").encode(), 0o600)
        try:
            return self._run() | {"seconds": round(time.monotonic() - started, 2), "streams": self.streams}
        finally:
            self._movers.shutdown(cancel_futures=True)
            self._hashers.shutdown(cancel_futures=True)
            self._password.unlink(missing_ok=True)
            for part in self._lacks:
                part.seen.save()

    def _run(self) -> dict[str, Any]:
        begun = time.monotonic()
        before = self._high = self._arrived()
        to_move = sum(item.size for part in self._lacks for item in part.bring)
        to_look = sum(item.size for part in self._lacks for item, _unused in part.check)
        self.job.meter.phase("moving" if to_move else "checking", to_move + to_look, before)
        for part in self._lacks:
            for item, path in part.check:
                self._pool.submit(self._hashers, self._look_at, part, item, path)
            for load in loads(part.bring):
                self._pool.submit(self._movers, self._bring, part, load, _APPEND)
        self._pool.wait(self._tick)
        if self.job.stop.is_set():
            raise JobError("stopped before everything was here: run again to go on")
        self._settle()
        return {
            "moved": max(self._arrived() - before, 0),
            "moving_s": round(max(self._moved_at - begun, 0.0), 2),
            "looked_at": self._looked,
            "mended": sorted(self.mended),
        }

    # ---- how far it is

    def _arrived(self) -> int:
        return sum(item.arrived() for part in self._lacks for item in part.bring)

    def _tick(self) -> None:
        arrived = self._arrived()
        if arrived > self._high:
            self._high = arrived
            self._advanced, self._last_error = time.monotonic(), ""
        self.job.meter.at(arrived + self._looked)
        if not self._moving:
            self._advanced = time.monotonic()
        silent = time.monotonic() - self._advanced
        self.job.meter.waiting(self._last_error if silent > 2 else "")
        if silent > self.order.patience_s:
            last = self._last_error or "no answer"
            self._pool.fail(JobError(f"nothing has arrived for {silent:.0f} s (last: {last}); run again to go on"))

    # ---- moving

    def _bring(self, part: Lack, load: list[Item], how: int) -> None:
        with self._lock:
            self._moving += 1
        try:
            if how == _ANEW:
                load[0].here.unlink(missing_ok=True)
            for source in self.order.sources if how == _APPEND else self.order.sources[-1:]:
                if source.host not in self._left and self._bring_from(source, load, how):
                    break
                if source.chained:
                    # Whoever comes after it in the chain takes from the head from now on.
                    self._left.add(source.host)
            else:
                return
        finally:
            with self._lock:
                self._moving -= 1
        self._moved_at = time.monotonic()
        for item in load:
            self._pool.submit(self._hashers, self._prove, part, item, how)

    def _bring_from(self, source: Source, load: list[Item], how: int) -> bool:
        """Call until everything is here. False: ask the next source (or, from the head, the job shall stop)."""
        tries, since, had = 0, time.monotonic(), -1
        turn = self._rails.turn()
        while not self.job.stop.is_set():
            began = time.monotonic()
            outcome = self._call(source, load, how, turn + tries)
            tries += 1
            have = sum(item.arrived() for item in load)
            if outcome.code == 0 and (not source.chained or all(item.arrived() == item.size for item in load)):
                return self._complete(source, load)
            if outcome.hopeless:
                if source.chained:
                    return False
                raise JobError(self._refused(source, load, outcome))
            # What came to a node of the chain during this call is there for the next one.
            pause = max(_CYCLE_S - (time.monotonic() - began), 0.0)
            if have > had:
                since, had = time.monotonic(), have
            elif source.chained and time.monotonic() - since > _CHAIN_PATIENCE_S:
                return False
            if outcome.code not in (0, *NOT_THERE):
                self._last_error = f"{source.host}: {outcome.reason}"
                if source.chained and tries >= 3:
                    return False
                pause = _PAUSE_S
            elif outcome.code and not source.chained:
                raise JobError(f"rsync from {source.host}: {outcome.reason}")
            self.job.stop.wait(pause)
        return False

    @staticmethod
    def _refused(source: Source, load: list[Item], outcome: Outcome) -> str:
        # What rsync says to an address that it does not allow as well.
        closed = "Unknown module" in outcome.reason or "access denied" in outcome.reason
        why = f"does not offer {load[0].store.name} to this node's address" if closed else outcome.reason
        return f"rsync from {source.host}: {why}"

    def _complete(self, source: Source, load: list[Item]) -> bool:
        for item in load:
            if item.arrived() != item.size:
                found = f"{item.arrived()} bytes came of {item.size}"
                why = "its folder has changed since, or holds links, which only the daemon follows"
                raise JobError(f"{source.host}: {item.store.name}/{item.path}: {found}; {why}")
        return True

    def _call(self, source: Source, load: list[Item], how: int, turn: int) -> Outcome:
        address = self._rails.pick(source.addresses, turn)
        host = f"[{address}]" if ":" in address else address
        store, limit = load[0].store, self.order.bandwidth // self.streams
        if self.order.shell:
            folder = store.incoming if source.chained else store.tree
            url = f"{host}:{folder.relative_to(store.root)}/"
            options = remote_shell_options(self.order.shell, limit)
        else:
            url = f"rsync://{USER}@{host}:{source.port}/{store.name}{'.incoming' if source.chained else ''}/"
            options = daemon_options(self._password, limit)
        if load[0].size < SMALL:
            options += ["--whole-file", "--ignore-times"]
        elif how == _MEND:
            options += ["--inplace", "--no-whole-file", "--ignore-times"]
        else:
            options += ["--append"]
        outcome = call(self.job, options, [item.path for item in load], url, load[0].store.incoming)
        if outcome.code not in (0, *NOT_THERE):
            self._rails.silent(address)
        return outcome

    # ---- proving

    def _look_at(self, part: Lack, item: Item, path: Path) -> None:
        """Hash a file that was there before; one that is not the item is brought, alone."""

        def looked(count: int) -> None:
            with self._lock:
                self._looked += count

        value, stamp = settled_sum(path, looked)
        if value == item.sha256:
            part.seen.add(item, stamp)
            return
        part.seen.forget(item)
        self.mended.append(f"{item.store.name}/{item.path}")
        self.job.meter.more(item.size)
        part.bring.append(item)
        self._pool.submit(self._movers, self._bring, part, [item], _APPEND if path == item.final else _MEND)

    def _settle(self) -> None:
        """Wait until what came is on the disk: only then may it be put in place."""
        came = [item for part in self._lacks for item in part.bring if item.here.is_file()]
        self.job.meter.phase("writing to the disk", sum(item.size for item in came))
        for item in came:
            descriptor = os.open(item.here, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            self.job.meter.add(item.size)

    def _prove(self, part: Lack, item: Item, how: int) -> None:
        """Hash what has arrived; what differs is brought again, each time more thoroughly."""
        value, stamp = settled_sum(item.here)
        if value == item.sha256:
            part.seen.add(item, stamp)
            return
        name = f"{item.store.name}/{item.path}"
        if how == _ANEW:
            head = self.order.sources[-1].host
            raise JobError(
                f"{name}: arrives from {head} with sha256 {value}, the manifest says {item.sha256}: the file on {head} "
                "is damaged; run playbooks/models.yml with models_deep=true, which finds and replaces it"
            )
        self.mended.append(name)
        self._pool.submit(self._movers, self._bring, part, [item], how + 1)


def pull(order: Order, job: Job) -> dict[str, Any]:
    """Do what the order says."""
    return Pull(order, job).run()
