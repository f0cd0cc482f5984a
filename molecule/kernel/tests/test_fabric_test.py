# SPDX-License-Identifier: GPL-3.0-or-later
"""The rail test measures real RDMA and real TCP, and judges each rail."""

from __future__ import annotations

import re
from typing import Any

from testbed.vm.settings import RAILS, SPEED_MBPS
from tests.bed import plays
from tests.kernel.pair import Node

PORT = 18600


def test_rdma_is_measured_over_each_rail_and_a_slow_one_fails(head: Node, worker: Node, inventory: str) -> None:
    outcome = plays.run("playbooks/fabric_test.yml", "-e", "fabric_test_seconds=1", inventory=inventory)
    assert outcome.failed
    for rail in RAILS:
        way = rf"{head.address(rail)} \({rail.netdev}, {rail.device}\) \S+ {worker.address(rail)}"
        numbers = rf"([0-9.]+) of {SPEED_MBPS // 1000} Gb/s, [0-9.e+]+ \S+ \(perftest\)"
        said = re.search(rf"{way}: {numbers}: SLOW: [0-9.]+ Gb/s, at least 180 expected", outcome.output)
        assert said, outcome.output[-3000:]
        assert float(said[1]) > 0


def test_tcp_is_measured_where_rdma_cannot_be(head: Node, worker: Node, seen: dict[int, dict[str, Any]]) -> None:
    rails = {number: seen[number]["rails"] for number in (1, 2)}
    worker.call("_fabric_bench", "serve", "iperf3", rails[2], PORT)
    peers = [worker.address(rail) for rail in RAILS]
    # An emulated processor is no measure, so the bounds are such as it meets.
    found = head.call("_fabric_bench", "measure", "iperf3", rails[1], peers, PORT, 1, [1, 1e6])
    assert [(entry["device"], entry["peer"], entry["sound"]) for entry in found] == [
        (rail.device, worker.address(rail), True) for rail in RAILS
    ]
    assert all(entry["mbps"] > 1 and entry["latency_us"] > 0 for entry in found)
