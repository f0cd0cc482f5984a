# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The guard of a node: ends the engine rather than let the machine freeze, and a rank that has lost the others."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from . import _node_evidence as evidence
from . import _node_history as history
from ._guard import Guard
from ._node_act import forget_failures, kill_group, state_of
from ._node_config import load
from ._node_memory import GIB, biggest, read_meminfo
from ._node_proc import PROC
from ._node_start import RANK, is_ray
from ._node_wait import port_open, say
from ._rank_watch import RankWatch, states

LOOK_S = 1.0
ASK_EVERY_S = 10.0
FORGET_EVERY_S = 60.0
STABLE_S = 600.0
_LOCK_NOW_AND_LATER = 3


def _stay_in_memory() -> None:
    """Keep this program's own pages, where the limits let it: it must run when there is no memory left."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mlockall(_LOCK_NOW_AND_LATER)


def act(node: dict[str, Any], available: int, floor: int) -> None:
    """End the engine of this node. What is cheap is kept before, the rest after: there is no memory to spend now."""
    why = (
        f"only {available / GIB:.2f} GiB of memory were available (floor {floor / GIB:.2f}); "
        f"the biggest users: {', '.join(biggest())}"
    )
    count = kill_group(node["units"])
    say(f"ended {count} process(es) of the engine: {why}")
    try:
        say(f"evidence is in {evidence.save(node, 'guard', why, evidence.local(node))}")
    except OSError as err:
        say(f"no evidence could be kept: {err}")


def forget(node: dict[str, Any]) -> None:
    """Ray of this node that has been up for long starts with short pauses again."""
    state = history.read(Path(node["root"]) / "state", 50)
    for unit in filter(is_ray, node["units"]):
        ready = history.last_of(state, unit, "ready").get("time", 0.0)
        if ready and time.time() - float(ready) > STABLE_S and state_of(node, unit).get("ActiveState") == "active":
            forget_failures(node, unit)


class Meeting:
    """Looks after a rank that runs without Ray."""

    def __init__(self, node: dict[str, Any]) -> None:
        self.node, self.watch = node, RankWatch()
        self.meet = None if node["is_head"] else node.get("meet")
        self.reachable, self.asked_at = True, 0.0

    def look(self, now: float) -> None:
        """Look once, and end the rank where it has lost the others."""
        if not self.meet:
            return
        address, port = self.meet
        running = state_of(self.node, RANK).get("ActiveState") == "active"
        tables = "".join((PROC / "net" / name).read_text(encoding="ascii") for name in ("tcp", "tcp6"))
        if now - self.asked_at >= ASK_EVERY_S:
            self.asked_at, self.reachable = now, not port_open(address, port)
        if why := self.watch.observe(now, running, states(tables, address, port), self.reachable):
            say(f"ended {kill_group([RANK])} process(es) of the rank: {why}")
            self.watch = RankWatch()


def main(*_: Any) -> None:
    """The verb `guard`."""
    node = load("node")
    limits = node["guard"]
    guard = Guard(int(limits["floor_bytes"]), float(limits["seconds"]))
    stop = threading.Event()

    def leave(_unused: int, __: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, leave)
    _stay_in_memory()
    forgot_at = time.monotonic()
    meeting = Meeting(node)
    while not stop.wait(LOOK_S):
        now = time.monotonic()
        available = read_meminfo()["MemAvailable"]
        if guard.observe(now, available):
            act(node, available, guard.floor)
        meeting.look(now)
        if now - forgot_at >= FORGET_EVERY_S:
            forgot_at = now
            forget(node)
