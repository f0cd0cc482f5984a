# SPDX-License-Identifier: GPL-3.0-or-later
"""Who does what, and every fault on the way to knowing it."""

from __future__ import annotations

from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _deployment as deployment

CARD: dict[str, Any] = {"name": "tiny", "nodes": {"min": 1, "max": 2}}
OPTIONS: dict[str, Any] = {
    "head": "",
    "scope": "user",
    "models_root": "models",
    "api": {"host": "0.0.0.0", "port": 8000},
    "fabric": {},
}


def port(device: str, netdev: str, address: str, index: int) -> dict[str, Any]:
    """An active RDMA port with one RoCE v2 row of its address."""
    octets = [int(part) for part in address.split(".")]
    gid = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*octets)
    row = {"index": index, "type": "RoCE v2", "gid": gid, "address": address, "netdev": netdev}
    return {
        "device": device,
        "port": 1,
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "link_layer": "Ethernet",
        "rate_mbps": 200000,
        "netdevs": [netdev],
        "pcie_width": 4,
        "pcie_max_width": 4,
        "rows": [row],
    }


def probe(name: str, address: str, index: int = 3, uid: int = 1000) -> dict[str, Any]:
    """What node_info gives of a node with one cable."""
    netdev = {
        "kind": "physical",
        "lower": [],
        "mtu": 9000,
        "carrier": True,
        "operstate": "up",
        "speed_mbps": 200000,
        "addresses": [{"address": address, "prefix": 24, "secondary": False, "dynamic": False}],
    }
    return {
        "node": {
            "user": "spark",
            "uid": uid,
            "gid": uid,
            "home": "/home/spark",
            "python": {"path": "/usr/bin/python3.12", "minor": "3.12", "version": "3.12.3"},
            "release": "",
        },
        "fabric": {
            "root": "/",
            "hostname": name,
            "ports": [port("rocep1s0f1", "enp1s0f1np1", address, index)],
            "netdevs": {"enp1s0f1np1": netdev},
            "address_source": "kernel",
            "nccl_conf": {},
        },
    }


PROBES = {"a": probe("a", "192.168.100.1"), "b": probe("b", "192.168.100.2", 5)}


def test_two_names_are_enough() -> None:
    built = deployment.assemble(["a", "b"], PROBES, CARD, OPTIONS)
    assert built["errors"] == []
    first, second = built["hosts"]["a"], built["hosts"]["b"]
    assert (first["rank"], first["is_head"], first["address"]) == (0, True, "192.168.100.1")
    assert (second["rank"], second["is_head"], second["address"]) == (1, False, "192.168.100.2")
    assert second["head_address"] == "192.168.100.1"
    assert first["fabric"]["subnets"] == ["192.168.100.0/24"]
    assert [rail["gid_index"] for rail in second["rails"]] == [5]
    assert first["root"] == "/home/spark/.local/share/dgx-spark-vllm"
    assert first["models_root"] == "/home/spark/models"
    assert first["unit_dir"] == "/home/spark/.config/systemd/user"


def test_the_inventory_may_choose_the_head_and_the_scope() -> None:
    built = deployment.assemble(["a", "b"], PROBES, CARD, {**OPTIONS, "head": "b", "scope": "system"})
    assert built["hosts"]["b"]["is_head"]
    assert built["hosts"]["a"]["hosts"] == ["b", "a"]
    assert built["hosts"]["a"]["unit_dir"] == "/etc/systemd/system"


def test_hosts_that_the_card_does_not_take_are_left_out() -> None:
    card = {**CARD, "nodes": {"min": 1, "max": 1}}
    built = deployment.assemble(["a", "b"], PROBES, card, OPTIONS)
    assert list(built["hosts"]) == ["a"]
    assert built["hosts"]["a"]["address"] == deployment.SINGLE_NODE_ADDRESS


def test_a_run_limited_to_one_host_is_refused() -> None:
    built = deployment.assemble(["a", "b"], {"a": PROBES["a"]}, CARD, OPTIONS)
    assert built["hosts"] == {}
    assert [fault["host"] for fault in built["errors"]] == ["b"]
    assert "--limit" in built["errors"][0]["cure"]


def test_too_few_hosts_and_an_unknown_head_are_reported_together() -> None:
    card = {**CARD, "nodes": {"min": 2, "max": 2}}
    built = deployment.assemble(["a"], {"a": PROBES["a"]}, card, {**OPTIONS, "head": "zz"})
    subjects = [fault["subject"] for fault in built["errors"]]
    assert "deployment_head" in subjects
    assert "card tiny" in subjects


def test_root_is_refused_as_the_engines_user() -> None:
    built = deployment.assemble(["a", "b"], {**PROBES, "b": probe("b", "192.168.100.2", uid=0)}, CARD, OPTIONS)
    assert [(fault["host"], fault["found"]) for fault in built["errors"]] == [("b", "root")]


def test_hosts_without_a_common_subnet_are_a_fault_of_the_fabric() -> None:
    built = deployment.assemble(["a", "b"], {**PROBES, "b": probe("b", "10.9.9.2")}, CARD, OPTIONS)
    assert built["errors"]
    assert built["hosts"]["a"]["address"] == ""


def test_a_models_root_may_be_absolute_or_begin_at_home() -> None:
    for given, wanted in (("/srv/models", "/srv/models"), ("~/m", "/home/spark/m")):
        built = deployment.assemble(["a", "b"], PROBES, CARD, {**OPTIONS, "models_root": given})
        assert built["hosts"]["a"]["models_root"] == wanted
