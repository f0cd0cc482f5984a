# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory caps and locked memory where a kernel enforces them. The role `limits` ran on the head alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from testbed.vm.settings import RAILS
from tests.kernel.pair import Node, ping_pong_once

UNIT = "vllm-ray-head.service"
DROP_IN = f"/home/spark/.config/systemd/user/{UNIT}.d/test.conf"
# All of the unit is the collection's but the program, which takes three times the card's cap.
GREEDY = """[Service]
ExecStart=
ExecStart=/home/spark/.local/share/dgx-spark-vllm/bin/fabric-env run -- /usr/bin/python3 -c "bytearray(300000000)"
ExecStartPost=
RestartSec=60
RestartSteps=0
"""
# More than the 8 MiB that an ordinary user may lock.
BIG = 24 << 20
DEFAULT_LIMIT = str(8 << 20)


@pytest.fixture
def greedy(head: Node) -> Iterator[Node]:
    head.out(f"mkdir -p $(dirname {DROP_IN}) && printf '%s' '{GREEDY}' > {DROP_IN} && systemctl --user daemon-reload")
    yield head
    head.out(f"systemctl --user stop {UNIT}; rm {DROP_IN}; systemctl --user daemon-reload")
    head.host.run(f"systemctl --user reset-failed {UNIT}")


@pytest.fixture
def busy(worker: Node) -> Iterator[Node]:
    """A unit named like ours runs on the node whose limits are as they came."""
    worker.out("systemd-run --user --quiet --collect --unit=vllm-test sleep 600")
    yield worker
    worker.host.run("systemctl --user stop vllm-test")
    worker.root("rm -f /etc/security/limits.d/90-dgx-spark-vllm.conf; systemctl restart user@1000.service")


def _locked_limit(node: Node, unit: str) -> tuple[str, str]:
    """What systemd says of a unit that asks for everything, and what its process got."""
    node.host.run(f"systemctl --user reset-failed {unit}")
    limits = "-p LimitMEMLOCK=infinity -p RuntimeMaxSec=60"
    node.out(f"systemd-run --user --quiet --collect --unit={unit} {limits} sleep 60")
    try:
        said = node.out(f"systemctl --user show -P LimitMEMLOCK {unit}")
        pid = node.out(f"systemctl --user show -P MainPID {unit}")
        return said, node.out(f"sed -n 's/^Max locked memory  *\\([^ ]*\\) .*/\\1/p' /proc/{pid}/limits")
    finally:
        node.out(f"systemctl --user stop {unit}")


def test_the_kernel_kills_a_unit_that_passes_its_cap_and_the_node_says_so(greedy: Node) -> None:
    assert greedy.out(f"systemctl --user show -P MemoryMax {UNIT}") == str(96 << 20)
    greedy.out(f"systemctl --user start {UNIT}")
    greedy.until(f"[ $(systemctl --user show -P SubState {UNIT}) = auto-restart ]", 120)
    assert greedy.out(f"systemctl --user show -P Result {UNIT}") == "oom-kill"
    assert "Memory cgroup out of memory" in greedy.out("sudo journalctl --dmesg --output=cat --since=-5min")
    journal = greedy.out(f"journalctl --user --unit={UNIT} --output=cat --since=-5min")
    assert "ended: the kernel ended it for lack of memory (oom-kill)" in journal


def test_a_units_memlock_is_clamped_without_a_word(worker: Node) -> None:
    assert _locked_limit(worker, "clamped") == ("infinity", DEFAULT_LIMIT)
    # What that means: RDMA can not register a buffer of that size.
    works, words = ping_pong_once(worker, RAILS[0], BIG)
    assert not works
    assert "register MR" in words


def test_the_role_lifts_it(head: Node) -> None:
    assert _locked_limit(head, "lifted") == ("infinity", "unlimited")
    works, words = ping_pong_once(head, RAILS[0], BIG)
    assert works, words


def test_it_is_not_lifted_under_what_runs_but_after_it(busy: Node) -> None:
    arguments = json.dumps({"user": "spark", "uid": 1000})
    before = busy.out("systemctl --user show -P MainPID vllm-test")
    found = busy.host.ansible("dgx_spark.vllm.user_limits", arguments, check=False, become=True)
    assert "vllm-test.service runs" in found["pending"]
    assert str(found["memlock"]) == DEFAULT_LIMIT
    assert busy.out("systemctl --user show -P MainPID vllm-test") == before
    busy.out("systemctl --user stop vllm-test")
    found = busy.host.ansible("dgx_spark.vllm.user_limits", arguments, check=False, become=True)
    assert (found["changed"], found["memlock"], found["pending"]) == (True, None, "")
    assert _locked_limit(busy, "late") == ("infinity", "unlimited")
