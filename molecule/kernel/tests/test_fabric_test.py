# SPDX-License-Identifier: GPL-3.0-or-later
"""`playbooks/fabric_test.yml` measures real RDMA and real TCP, and judges each rail."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from testbed.vm.settings import RAILS, SPEED_MBPS
from tests.bed import plays
from tests.kernel.pair import Node

PLAYBOOK = ("playbooks/fabric_test.yml", "-e", "fabric_test_seconds=1")


@pytest.fixture
def without_perftest(worker: Node) -> Iterator[None]:
    worker.root("chmod 0 /usr/bin/ib_write_lat")
    yield
    worker.root("chmod 755 /usr/bin/ib_write_lat")


def verdicts(said: str, head: Node, worker: Node, method: str) -> list[str]:
    """What is said of each rail after its numbers."""
    found = []
    for rail in RAILS:
        way = rf"{head.address(rail)} \({rail.netdev}, {rail.device}\) \S+ {worker.address(rail)}"
        numbers = rf"[0-9.]+ of {SPEED_MBPS // 1000} Gb/s, [0-9.e+]+ \S+ \({method}\)"
        match = re.search(rf"{way}: {numbers}: ([^\"]*)", said)
        assert match, f"{rail.device}: {said[-3000:]}"
        found.append(match[1])
    return found


def test_rdma_is_measured_over_each_rail(head: Node, worker: Node, inventory: str) -> None:
    # An emulated processor is no measure, so its bounds are such as it meets.
    bounds = ("-e", "fabric_test_floor_mbps=1", "-e", "fabric_test_latency_us=1000000")
    outcome = plays.run(*PLAYBOOK, *bounds, inventory=inventory)
    assert not outcome.failed, outcome.said()
    assert verdicts(outcome.output, head, worker, "perftest") == ["sound", "sound"]


def test_tcp_stands_in_and_a_slow_rail_fails(head: Node, worker: Node, without_perftest: None, inventory: str) -> None:
    outcome = plays.run(*PLAYBOOK, inventory=inventory)
    assert outcome.failed
    for said in verdicts(outcome.output, head, worker, "iperf3"):
        assert re.match(r"SLOW: [0-9.]+ Gb/s, at least 80 expected", said)
