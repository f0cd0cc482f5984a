# SPDX-License-Identifier: GPL-3.0-or-later
"""The resolver against the GID tables of a running kernel, and RDMA over what it chooses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.vm.settings import MTU, RAILS, SPEED_MBPS, Rail
from tests.kernel.pair import PROGRAM, SUBNETS, Node, machine, mapped, ping_pong, table_path

FIRST, SECOND = RAILS


@pytest.fixture
def both_moved(head: Node) -> Iterator[Node]:
    """The head's addresses stand one slot further, on both rails."""
    for rail in RAILS:
        head.move_index(rail)
    yield head
    _back(head)


@pytest.fixture
def one_moved(head: Node) -> Iterator[Node]:
    """Only the head's second rail has moved, so that its rails share no index."""
    head.move_index(SECOND)
    yield head
    _back(head)


def _back(node: Node) -> None:
    for rail in RAILS:
        if node.index(rail) != 1:
            node.take_address(rail)
            node.give_address(rail)
        assert node.index(rail) == 1


def test_rails_are_what_the_kernel_has(head: Node, worker: Node, seen: dict[int, dict[str, Any]]) -> None:
    for node in (head, worker):
        rails = {rail["netdev"]: rail for rail in seen[node.number]["rails"]}
        assert set(rails) == {rail.netdev for rail in RAILS}
        for rail in RAILS:
            found = rails[rail.netdev]
            assert found["device"] == rail.device
            assert found["address"] == node.address(rail)
            assert found["gid_index"] == node.index(rail)
            assert (found["state"], found["mtu"], found["speed_mbps"]) == ("ACTIVE", MTU, SPEED_MBPS)
            assert {row["index"]: row["gid"] for row in found["rows"]} == node.slots(rail)
            chosen = next(row for row in found["rows"] if row["index"] == found["gid_index"])
            assert (chosen["type"], chosen["netdev"]) == ("RoCE v2", rail.netdev)


def test_the_pair_agrees_on_both_rails_without_being_told(head: Node, seen: dict[int, dict[str, Any]]) -> None:
    across = head.fabric(hosts={"a": seen[1]["facts"], "b": seen[2]["facts"]})["hosts"]
    assert across["errors"] == []
    assert across["subnets"] == SUBNETS
    for name, number in (("a", 1), ("b", 2)):
        assert [rail["address"] for rail in across["rails"][name]] == [rail.address(number) for rail in RAILS]
        assert across["environment"][name] == {
            "NCCL_NET": "IB",
            "NCCL_IB_DISABLE": "0",
            "NCCL_IB_HCA": f"={FIRST.device}:1,{SECOND.device}:1",
            "NCCL_IB_GID_INDEX": "1",
            "NCCL_SOCKET_IFNAME": f"={FIRST.netdev}",
            "GLOO_SOCKET_IFNAME": FIRST.netdev,
            "VLLM_HOST_IP": FIRST.address(number),
        }


def test_an_empty_slot_refuses_to_be_read(head: Node) -> None:
    free = max(head.slots(FIRST)) + 1
    for attribute in ("types", "ndevs"):
        done = head.host.run(f"cat {table_path(FIRST)}/gid_attrs/{attribute}/{free}")
        assert done.rc != 0
        assert "Invalid argument" in done.stderr


@pytest.mark.parametrize("rail", RAILS, ids=lambda rail: rail.device)
def test_rdma_runs_over_the_chosen_index_and_over_no_empty_one(
    head: Node, worker: Node, seen: dict[int, dict[str, Any]], rail: Rail
) -> None:
    there, here = (
        next(found["gid_index"] for found in seen[number]["rails"] if found["device"] == rail.device)
        for number in (1, 2)
    )
    works, words = ping_pong(head, worker, rail, (there, here), 18500 + 10 * rail.index)
    assert works, words
    works, words = ping_pong(head, worker, rail, (there, here + 5), 18501 + 10 * rail.index)
    assert not works, words


def test_the_resolver_follows_a_real_drift(both_moved: Node, worker: Node) -> None:
    hole = both_moved.host.run(f"cat {table_path(FIRST)}/gid_attrs/types/1")
    assert "Invalid argument" in hole.stderr
    found = both_moved.fabric(subnets=SUBNETS)
    assert [rail["gid_index"] for rail in found["rails"]] == [2, 2]
    assert [both_moved.index(rail) for rail in RAILS] == [2, 2]
    assert found["environment"]["NCCL_IB_GID_INDEX"] == "2"
    # The peer's index is its own affair: 2 here, 1 there.
    works, words = ping_pong(both_moved, worker, FIRST, (2, worker.index(FIRST)), 18520)
    assert works, words
    works, words = ping_pong(both_moved, worker, FIRST, (1, worker.index(FIRST)), 18521)
    assert not works, words


def test_rails_without_a_common_index_get_a_range_instead_of_a_pin(one_moved: Node) -> None:
    environment = one_moved.fabric(subnets=SUBNETS)["environment"]
    assert "NCCL_IB_GID_INDEX" not in environment
    assert environment["NCCL_IB_ADDR_FAMILY"] == "AF_INET"
    assert environment["NCCL_IB_ROCE_VERSION_NUM"] == "2"
    assert environment["NCCL_IB_ADDR_RANGE"] == "192.168.100.0/23"
    pinned = one_moved.fabric(subnets=SUBNETS, gid_mode="pin")
    assert [error["fault"] for error in pinned["errors"]] == ["no-common-index"]


def test_a_start_waits_for_its_address_and_says_where_it_moved(head: Node) -> None:
    folder = head.out("mktemp -d")
    head.out(f"echo '{json.dumps({'subnets': SUBNETS, 'wait_s': 60})}' > {folder}/fabric.json")
    program = f"{PROGRAM} --config {folder}/fabric.json --state {folder}/state.json"
    assert "NCCL_IB_GID_INDEX=1" in head.out(f"{program} run -- env")
    try:
        head.take_address(FIRST)
        head.out(
            f"systemd-run --user --quiet --unit=late --property=RuntimeMaxSec=90 --collect {program} run -- sleep 60"
        )
        head.until("journalctl --user --unit=late --output=cat | grep -q waiting")
        head.root(f"ip address add 198.51.100.1/32 dev {FIRST.netdev}")
        head.until(f"grep -q {mapped('198.51.100.1')} {table_path(FIRST)}/gids/1")
        head.give_address(FIRST)
        head.until("[ $(ps -o comm= -p $(systemctl --user show -P MainPID late)) = sleep ]")
        running = head.out("tr '\\0' '\\n' < /proc/$(systemctl --user show -P MainPID late)/environ")
        assert "NCCL_IB_GID_INDEX" not in running  # 2 on one rail, 1 on the other
        assert f"VLLM_HOST_IP={head.address(FIRST)}" in running.splitlines()
        assert "1 → 2" in head.out(f"{program} show")
    finally:
        head.host.run("systemctl --user stop late")
        head.root(f"ip address del 198.51.100.1/32 dev {FIRST.netdev}")
        _back(head)


def test_unequal_mtu_is_an_error_and_long_packets_prove_it(head: Node, worker: Node) -> None:
    peers = [worker.address(rail) for rail in RAILS]
    reached = head.fabric(subnets=SUBNETS, peers=peers)
    assert [entry["reached"] for entry in reached["reach"]] == [True, True]
    assert all(entry["method"] == f"ping -M do -s {MTU - 28}" for entry in reached["reach"])
    assert "active_mtu:\t\t4096" in head.out(f"ibv_devinfo -d {FIRST.device}")
    # A card drops frames longer than its MTU. The emulated one hands them over, so a rule does it in its place.
    hook = f"type filter hook ingress device {FIRST.netdev} priority 0\nmeta length > 1500 drop"
    worker.root(f"nft 'table netdev card {{\nchain in {{\n{hook}\n}}\n}}'")
    try:
        worker.root(f"ip link set {FIRST.netdev} mtu 1500")
        facts = {"head": reached["facts"], "worker": worker.fabric(subnets=SUBNETS)["facts"]}
        refused = head.fabric(subnets=SUBNETS, peers=peers, hosts=facts)
        assert "mtu" in {error["fault"] for error in refused["hosts"]["errors"]}
        assert [entry["reached"] for entry in refused["reach"]] == [False, True]
    finally:
        worker.root(f"ip link set {FIRST.netdev} mtu {MTU}; nft delete table netdev card")


def test_a_pulled_cable_is_seen_and_so_is_its_return(head: Node) -> None:
    state = f"{table_path(FIRST)}/state"
    machine("cut")
    try:
        head.until(f"grep -q DOWN {state}")
        pulled = head.fabric(subnets=SUBNETS)
        assert {error["fault"] for error in pulled["errors"]} == {"port-down"}
    finally:
        machine("heal")
    head.until(f"grep -q ACTIVE {state}")
    assert "errors" not in head.fabric(subnets=SUBNETS)
