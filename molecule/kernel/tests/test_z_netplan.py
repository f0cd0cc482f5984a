# SPDX-License-Identifier: GPL-3.0-or-later
"""`playbooks/fabric.yml` on a real network: what it gave, what is taken back, what one command undoes. Goes last."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from testbed.vm.settings import CONTROLLER, MTU, RAILS
from tests.bed import plays
from tests.kernel.pair import Node

FIRST, SECOND = RAILS
TARGET = "/etc/netplan/60-dgx-spark-vllm-fabric.yaml"
ROLLBACK_S = 40


def play(inventory: str, **variables: object) -> plays.Outcome:
    return plays.run("playbooks/fabric.yml", "-e", json.dumps(variables), inventory=inventory)


def addresses(node: Node) -> list[str]:
    """The IPv4 addresses of the second rail."""
    return [line.split()[3] for line in node.out(f"ip -4 -o address show dev {SECOND.netdev}").splitlines()]


def assert_nothing_is_pending(node: Node) -> None:
    left = node.out("sudo find /var/lib/dgx-spark-vllm /etc/systemd/system -name pending -o -name '*rollback.service'")
    assert left == ""
    timers = node.out("systemctl list-timers --all --no-legend")
    assert "dgx-spark" not in timers


def reachable(port: int) -> bool:
    """Whether the node's SSH says a word; a login would cost an emulated processor seconds."""
    try:
        with socket.create_connection(("127.0.0.1", port), 3) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def test_a_bare_port_was_given_an_address_and_only_that(head: Node, worker: Node) -> None:
    for node in (head, worker):
        assert addresses(node) == [f"{node.address(SECOND)}/24"]
        assert node.out(f"cat /sys/class/net/{SECOND.netdev}/mtu") == str(MTU)
        assert node.out(f"sudo stat -c '%a %U' {TARGET}") == "600 root"
        assert FIRST.netdev not in node.out(f"sudo cat {TARGET}")
        assert_nothing_is_pending(node)


def test_what_cuts_ssh_off_is_taken_back_by_the_node_itself(head: Node, worker: Node, inventory: str) -> None:
    before = head.out(f"sudo cat {TARGET}")
    # A network that holds the controller, which is else behind the gateway: answers to SSH leave by the fabric.
    fatal = {"spark-01": {SECOND.netdev: f"{CONTROLLER.rpartition('.')[0]}.1/29"}}
    port, cut_off = head.host.backend.get_variables()["ansible_port"], False
    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(play, inventory, fabric_netplan_addresses=fatal, fabric_netplan_rollback_s=ROLLBACK_S)
        while not playing.done():
            cut_off |= not reachable(port)
            time.sleep(1)
    outcome = playing.result()
    assert outcome.failed
    assert outcome.changed["spark-02"] == [], "a second run changes nothing where nothing is to be changed"
    assert cut_off
    journal = "sudo journalctl --boot --unit=dgx-spark-fabric-rollback --output=cat"
    head.until(f"{journal} | grep -q ^Finished", ROLLBACK_S)
    assert addresses(head) == [f"{head.address(SECOND)}/24"]
    assert head.out(f"sudo cat {TARGET}") == before
    assert head.out(f"sudo stat -c %a {TARGET}") == "600"
    for node in (head, worker):
        assert_nothing_is_pending(node)
    assert head.index(SECOND) >= 1


def test_one_command_undoes_it(head: Node, worker: Node, inventory: str) -> None:
    outcome = play(inventory, fabric_netplan_state="absent")
    assert not outcome.failed, outcome.said()
    for node in (head, worker):
        assert addresses(node) == []
        assert node.host.run(f"sudo test -e {TARGET}").rc == 1
        assert_nothing_is_pending(node)
