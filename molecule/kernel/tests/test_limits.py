# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory caps and locked memory where a kernel enforces them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.vm.settings import RAILS
from tests.kernel.pair import Node, ping_pong_once

# More than the 8 MiB that an ordinary user may lock.
BIG = 24 << 20
LIMIT_FILE = "/etc/security/limits.d/90-test-memlock.conf"


def _eat(node: Node, unit: str, cap: str) -> str:
    """A unit that takes 200 MB under a cap; how systemd says it ended."""
    program = "python3 -c 'bytearray(200 << 20)'"
    limits = f"-p MemoryMax={cap} -p MemorySwapMax=0 -p RuntimeMaxSec=60"
    node.host.run(f"systemctl --user reset-failed {unit}")
    node.host.run(f"systemd-run --user --quiet --wait --unit={unit} {limits} {program}")
    return node.out(f"systemctl --user show -P Result {unit}")


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


@pytest.fixture
def memlock_cured(head: Node) -> Iterator[Node]:
    """The user's limit lifted where PAM reads it, and the user's systemd started anew."""
    head.root(f"printf 'spark - memlock unlimited\\n' > {LIMIT_FILE}; systemctl restart user@1000.service")
    yield head
    head.root(f"rm {LIMIT_FILE}; systemctl restart user@1000.service")


def test_the_kernel_kills_what_passes_its_cap(head: Node) -> None:
    assert _eat(head, "eater", "64M") == "oom-kill"
    assert "Memory cgroup out of memory" in head.out("sudo journalctl --dmesg --output=cat --since=-2min")
    # The same program under a cap that it fits into: it was the cap that killed.
    assert _eat(head, "modest", "400M") == "success"


def test_a_units_memlock_is_clamped_without_a_word(worker: Node) -> None:
    said, got = _locked_limit(worker, "clamped")
    assert said == "infinity"
    assert got == str(8 << 20)
    # What that means: RDMA can not register a buffer of that size.
    works, words = ping_pong_once(worker, RAILS[0], BIG)
    assert not works
    assert "register MR" in words


def test_limits_d_and_a_new_user_manager_lift_it(memlock_cured: Node) -> None:
    assert _locked_limit(memlock_cured, "lifted") == ("infinity", "unlimited")
    works, words = ping_pong_once(memlock_cured, RAILS[0], BIG)
    assert works, words
