# SPDX-License-Identifier: GPL-3.0-or-later
"""`playbooks/fabric.yml` on a real network: what it gave, what is taken back, what one command undoes."""

from __future__ import annotations

import json
import subprocess
import time

from testbed.vm.settings import CONTROLLER, MTU, RAILS
from tests.bed import plays
from tests.kernel.pair import INVENTORY, ROOT, Node

FIRST, SECOND = RAILS
TARGET = "/etc/netplan/60-dgx-spark-vllm-fabric.yaml"
ROLLBACK_S = 30


def play(**variables: object) -> plays.Outcome:
    return plays.run("playbooks/fabric.yml", "-e", json.dumps(variables), inventory=INVENTORY)


def addresses(node: Node) -> list[str]:
    """The IPv4 addresses of the second rail."""
    return [line.split()[3] for line in node.out(f"ip -4 -o address show dev {SECOND.netdev}").splitlines()]


def assert_nothing_is_pending(node: Node) -> None:
    left = node.out("sudo find /var/lib/dgx-spark-vllm /etc/systemd/system -name pending -o -name '*rollback.service'")
    assert left == ""
    timers = node.out("systemctl list-timers --all --no-legend")
    assert "dgx-spark" not in timers


def reachable(node: Node) -> bool:
    argv = [str(ROOT / "testbed/vm/vm"), "ssh", str(node.number), "true"]
    try:
        return subprocess.run(argv, capture_output=True, check=False, timeout=10).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def test_a_bare_port_was_given_an_address_and_only_that(head: Node, worker: Node) -> None:
    for node in (head, worker):
        assert addresses(node) == [f"{node.address(SECOND)}/24"]
        assert node.out(f"cat /sys/class/net/{SECOND.netdev}/mtu") == str(MTU)
        assert node.out(f"sudo stat -c '%a %U' {TARGET}") == "600 root"
        assert FIRST.netdev not in node.out(f"sudo cat {TARGET}")
        assert_nothing_is_pending(node)


def test_what_cuts_ssh_off_is_taken_back_by_the_node_itself(head: Node, worker: Node) -> None:
    before = head.out(f"sudo cat {TARGET}")
    # A network that holds the controller, which is else behind the gateway: answers to SSH leave by the fabric.
    fatal = f"{CONTROLLER.rpartition('.')[0]}.1/29"
    outcome = play(fabric_netplan_addresses={"spark-01": {SECOND.netdev: fatal}}, fabric_netplan_rollback_s=ROLLBACK_S)
    assert outcome.failed
    assert "timed out waiting for ping module test" in outcome.output, outcome.said()
    end = time.monotonic() + 2 * ROLLBACK_S
    while not reachable(head):
        assert time.monotonic() < end, "the node did not come back"
    head.until("! systemctl is-active --quiet dgx-spark-fabric-rollback.service", ROLLBACK_S)
    assert addresses(head) == [f"{head.address(SECOND)}/24"]
    assert head.out(f"sudo cat {TARGET}") == before
    assert head.out(f"sudo stat -c %a {TARGET}") == "600"
    for node in (head, worker):
        assert_nothing_is_pending(node)
    assert head.index(SECOND) >= 1


def test_one_command_undoes_it(head: Node, worker: Node) -> None:
    outcome = play(fabric_netplan_state="absent")
    assert not outcome.failed, outcome.said()
    for node in (head, worker):
        assert addresses(node) == []
        assert node.host.run(f"sudo test -e {TARGET}").rc == 1
        assert_nothing_is_pending(node)
