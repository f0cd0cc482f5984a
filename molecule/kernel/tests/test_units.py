# SPDX-License-Identifier: GPL-3.0-or-later
"""A clock that is set back and memory that runs out, on a machine that has its own of both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernel.pair import HOME, Node

UNIT, GUARD = "vllm-ray-head.service", "vllm-guard.service"
DROP_IN = f"/home/spark/.config/systemd/user/{UNIT}.d/clock.conf"
# All of the unit is the collection's but the program.
QUIET = f"""[Service]
ExecStart=
ExecStart={HOME}/bin/fabric-env run -- /usr/bin/sleep infinity
ExecStartPost=
"""


@pytest.fixture(scope="module")
def running(head: Node) -> Iterator[Node]:
    head.out(f"mkdir -p $(dirname {DROP_IN}) && printf '%s' '{QUIET}' > {DROP_IN} && systemctl --user daemon-reload")
    head.out(f"systemctl --user start {UNIT} {GUARD}")
    yield head
    head.out(f"systemctl --user stop {UNIT} {GUARD}; rm {DROP_IN}; systemctl --user daemon-reload")
    head.host.run(f"systemctl --user reset-failed {UNIT}")


def main_pid(node: Node, unit: str) -> str:
    return node.out(f"systemctl --user show -P MainPID {unit}")


def events(node: Node, what: str) -> list[dict[str, Any]]:
    """What the node wrote down of one kind, oldest first."""
    found = json.loads(node.out(f"{HOME}/bin/vllm-node status --json"))
    return [event for event in found["events"] if event["what"] == what]


def test_the_guard_ends_the_engine_before_memory_runs_out(running: Node) -> None:
    before = {unit: main_pid(running, unit) for unit in (UNIT, GUARD)}
    # Somebody else's program takes what is left, but for 900 MiB; the floor is at 1000, since an emulated processor
    # takes half a minute for a gigabyte.
    size = int(running.out("awk '/MemAvailable/ {print $2 * 1024}' /proc/meminfo")) - (900 << 20)
    # 23 is MADV_POPULATE_WRITE.
    eater = (
        f"import mmap, time; taken = mmap.mmap(-1, {size}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); "
        "taken.madvise(mmap.MADV_HUGEPAGE); taken.madvise(23); time.sleep(300)"
    )
    running.out(f'systemd-run --user --quiet --collect --unit=eater /usr/bin/python3 -c "{eater}"')
    try:
        running.until(f"[ $(systemctl --user show -P MainPID {UNIT}) != {before[UNIT]} ]", 60)
    finally:
        running.out("systemctl --user stop eater")
    running.until(f"[ $(systemctl --user show -P SubState {UNIT}) = running ]", 60)
    (event,) = events(running, "guard")
    assert "GiB of memory were available (floor 0.98)" in event["why"]
    assert "python3" in event["why"]
    assert running.out(f"cat {event['folder']}/why.txt") == event["why"]
    assert main_pid(running, GUARD) == before[GUARD]


def test_a_clock_set_back_by_an_hour_ends_nothing_and_delays_no_restart(running: Node) -> None:
    before = {unit: main_pid(running, unit) for unit in (UNIT, GUARD)}
    said = running.out("date +%s")
    running.root("date -s '-1 hour'")
    try:
        assert int(running.out("date +%s")) < int(said) - 3000
        assert {unit: main_pid(running, unit) for unit in (UNIT, GUARD)} == before
        running.out(f"kill -KILL {before[UNIT]}")
        running.until(
            f"[ $(systemctl --user show -P SubState {UNIT}) = running ] "
            f"&& [ $(systemctl --user show -P MainPID {UNIT}) != {before[UNIT]} ]",
            60,
        )
        assert events(running, "stopped")[-1]["why"] == "it ended by signal KILL"
        assert main_pid(running, GUARD) == before[GUARD]
    finally:
        running.root("date -s '+1 hour'")
