# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric across hosts: rails found with nothing told, and every way two ends may not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._fabric_checks import check_hosts
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce_types import Facts, HostsReport

from tests.unit.plugins.module_utils import fabric_trees as trees

TWIN = "enP2p1s0f1np1"


def pair(root: Path, one: dict[str, Any] | None = None, other: dict[str, Any] | None = None) -> dict[str, Facts]:
    """Two Sparks whose indices differ, as they do in the field."""
    return {
        "spark-01": trees.spark(root / "1", 1, **{"index": 3, **(one or {})}),
        "spark-02": trees.spark(root / "2", 2, **{"index": 5, **(other or {})}),
    }


def node(root: Path, text: str, addresses: dict[str, list[str]]) -> Facts:
    trees.tree(root, text)
    return trees.facts(trees.addresses(root, addresses))


def cable(number: int, host: int, netdev: str = "", prefix: int = 24) -> tuple[str, str, str]:
    """Text, interface and address of one more cabled port: rail `number` of host `host`."""
    netdev = netdev or f"eth{number}"
    return f"dev{number} {netdev} ACTIVE\n 3 v2 10.0.{number}.{host}", netdev, f"10.0.{number}.{host}/{prefix}"


def cabled(root: Path, host: int, *numbers: int, **options: Any) -> Facts:
    ports = [cable(number, host, **options) for number in numbers]
    text, entries = "\n".join(port[0] for port in ports), {port[1]: [port[2]] for port in ports}
    return node(root / str(host), text, entries)


def faults(report: HostsReport) -> list[str]:
    return [error["fault"] for error in report["errors"]]


def test_two_host_names_are_enough(tmp_path: Path) -> None:
    report = check_hosts(pair(tmp_path))
    assert report["errors"] == report["warnings"] == []
    assert report["subnets"] == ["192.168.100.0/24", "192.168.101.0/24"]
    for name, host, index in (("spark-01", 1, "3"), ("spark-02", 2, "5")):
        assert [rail["address"] for rail in report["rails"][name]] == [f"192.168.{net}.{host}" for net in (100, 101)]
        assert report["environment"][name]["NCCL_IB_GID_INDEX"] == index
        assert report["environment"][name]["VLLM_HOST_IP"] == f"192.168.100.{host}"


def test_the_cable_may_be_in_another_port_of_each_host(tmp_path: Path) -> None:
    hosts = {
        "a": node(tmp_path / "a", "rocep1s0f1 enp1s0f1np1 ACTIVE\n 3 v2 10.0.0.1", {"enp1s0f1np1": ["10.0.0.1/24"]}),
        "b": node(tmp_path / "b", "mlx5_0 enp1s0f0np0 ACTIVE\n 3 v2 10.0.0.2", {"enp1s0f0np0": ["10.0.0.2/24"]}),
    }
    report = check_hosts(hosts)
    assert report["errors"] == report["warnings"] == []
    assert [report["rails"][name][0]["device"] for name in hosts] == ["rocep1s0f1", "mlx5_0"]


def test_c01_a_pin_for_all_is_checked_on_each_host(tmp_path: Path) -> None:
    report = check_hosts(pair(tmp_path), pins={"spark-01": {"index": 3}, "spark-02": {"index": 3}})
    (error,) = report["errors"]
    assert (error["host"], error["fault"]) == ("spark-02", "pin")
    assert "192.168.100.2" in error["found"]


def test_pins_may_come_with_the_facts(tmp_path: Path) -> None:
    hosts = pair(tmp_path)
    hosts["spark-02"]["pins"] = {"index": 3}
    assert [error["host"] for error in check_hosts(hosts)["errors"]] == ["spark-02"]


def test_a_bad_pin_is_told_even_where_no_rail_is_found(tmp_path: Path) -> None:
    hosts = pair(tmp_path)
    report = check_hosts(hosts, pins={"spark-01": {"address": "192.168.100.77"}, "spark-02": {"index": "auto"}})
    assert {(error["host"], error["fault"]) for error in report["errors"]} >= {
        ("spark-01", "no-address"),
        ("spark-02", "config"),
    }


def test_a_pinned_interface_leaves_the_other_rail_out_everywhere(tmp_path: Path) -> None:
    report = check_hosts(pair(tmp_path), pins={"spark-02": {"interface": TWIN}})
    assert report["subnets"] == ["192.168.101.0/24"]
    assert report["errors"] == []


def test_c03_different_mtus_name_both_ends(tmp_path: Path) -> None:
    report = check_hosts(pair(tmp_path, other={"mtu": 1500}))
    errors = [error for error in report["errors"] if error["fault"] == "mtu"]
    assert [error["host"] for error in errors] == ["spark-02", "spark-02"]
    assert errors[0]["found"] == "spark-01 enp1s0f1np1 9000, spark-02 enp1s0f1np1 1500"


def test_c08_the_rail_of_one_host_without_address_is_left_out_and_told(tmp_path: Path) -> None:
    report = check_hosts(pair(tmp_path, other={"rails": 1}))
    assert report["errors"] == []
    assert report["subnets"] == ["192.168.100.0/24"]
    texts = [(warning["host"], warning["found"]) for warning in report["warnings"]]
    assert ("spark-02", "only on spark-01: not used as a rail") in texts
    assert any(host == "spark-02" and "half the bandwidth" in found for host, found in texts)


def test_c09_a_floor_makes_a_slow_link_an_error(tmp_path: Path) -> None:
    hosts = pair(tmp_path, one={"rails": 1}, other={"rails": 1, "rate": 100})
    report = check_hosts(hosts)
    assert report["errors"] == []
    found = [warning["found"] for warning in report["warnings"] if warning["host"] == "spark-02"]
    assert "the link runs at 100 Gb/s" in found
    assert any("spark-01 enp1s0f1np1 200000, spark-02 enp1s0f1np1 100000" in text for text in found)
    (error,) = check_hosts(hosts, min_speed_mbps=200_000)["errors"]
    assert (error["host"], error["fault"], error["found"]) == ("spark-02", "speed", "100 Gb/s")


def test_c13_each_host_without_a_device_is_named(tmp_path: Path) -> None:
    hosts = {name: node(tmp_path / name, "", {"enP7s7": [f"10.0.0.{name}/24"]}) for name in ("1", "2")}
    report = check_hosts(hosts)
    assert [(error["host"], error["fault"]) for error in report["errors"]] == [("1", "no-device"), ("2", "no-device")]
    assert report["rails"] == {}


def test_a_shared_management_network_is_no_rail(tmp_path: Path) -> None:
    hosts = pair(tmp_path, one={"rails": 1}, other={"rails": 1})
    trees.addresses(tmp_path / "2", {"enp1s0f1np1": ["192.168.7.2/24"], "enP7s7": ["10.0.0.2/24"]})
    hosts["spark-02"] = trees.facts(tmp_path / "2")
    (error,) = check_hosts(hosts)["errors"]
    assert error["fault"] == "no-address"
    assert error["host"] == "spark-01, spark-02"
    assert "10.0.0" not in error["found"]
    assert "192.168.7.0/24" in error["found"]


def test_different_prefix_lengths_are_told(tmp_path: Path) -> None:
    hosts = {"a": cabled(tmp_path, 1, 0), "b": cabled(tmp_path, 2, 0, prefix=16)}
    (error,) = check_hosts(hosts)["errors"]
    assert "prefix lengths differ" in error["cure"]


def test_one_host_needs_no_rail(tmp_path: Path) -> None:
    assert check_hosts({"a": node(tmp_path / "a", "", {"enP7s7": ["10.0.0.1/24"]})})["errors"] == []
    assert check_hosts({"a": cabled(tmp_path, 1, 0)})["rails"]["a"][0]["address"] == "10.0.0.1"


@pytest.mark.parametrize("count", [3, 8])
def test_several_hosts_on_a_switch(tmp_path: Path, count: int) -> None:
    hosts = {f"n{host}": cabled(tmp_path, host, 0, 1) for host in range(1, count + 1)}
    report = check_hosts(hosts)
    assert report["errors"] == []
    assert [len(report["rails"][name]) for name in hosts] == [2] * count


def test_a_ring_of_three_is_refused_with_the_reason(tmp_path: Path) -> None:
    hosts = {"a": cabled(tmp_path, 1, 0, 1), "b": cabled(tmp_path, 2, 1, 2), "c": cabled(tmp_path, 3, 2, 0)}
    (error,) = check_hosts(hosts)["errors"]
    assert error["host"] == "a, b, c"
    assert "as a ring or a chain" in error["cure"]
    assert "10.0.1.0/24 (eth1 10.0.1.1)" in error["found"]


def test_several_cables_are_all_used(tmp_path: Path) -> None:
    hosts = {f"n{host}": cabled(tmp_path, host, 0, 1, 2, 3) for host in (1, 2)}
    report = check_hosts(hosts)
    assert report["subnets"] == [f"10.0.{number}.0/24" for number in range(4)]
    assert report["environment"]["n1"]["NCCL_IB_HCA"] == "=dev0:1,dev1:1,dev2:1,dev3:1"


def test_a_second_subnet_on_the_same_port_adds_no_rail(tmp_path: Path) -> None:
    hosts = {}
    for host in (1, 2):
        text = f"dev0 eth0 ACTIVE\n 3 v2 10.0.0.{host}, 5 v2 10.5.0.{host}"
        hosts[f"n{host}"] = node(tmp_path / str(host), text, {"eth0": [f"10.0.0.{host}/24", f"10.5.0.{host}/24"]})
    report = check_hosts(hosts)
    assert report["subnets"] == ["10.0.0.0/24"]
    assert [warning["subject"] for warning in report["warnings"]] == ["subnet 10.5.0.0/24"]


def test_the_port_itself_comes_before_a_vlan_on_it(tmp_path: Path) -> None:
    hosts = {}
    for host in (1, 2):
        root = tmp_path / str(host)
        trees.interface(root, "eth0.100", kind="vlan")
        text = f"dev0 eth0 ACTIVE\n 3 v2 10.9.0.{host}, 5 v2 10.0.0.{host} [eth0.100]"
        hosts[f"n{host}"] = node(root, text, {"eth0": [f"10.9.0.{host}/24"], "eth0.100": [f"10.0.0.{host}/24"]})
    assert check_hosts(hosts)["subnets"] == ["10.9.0.0/24"]
    for found in hosts.values():
        found["netdevs"]["eth0"]["addresses"] = []
    report = check_hosts(hosts)
    assert [report["rails"][name][0]["netdev"] for name in hosts] == ["eth0.100", "eth0.100"]
    assert [report["rails"][name][0]["gid_index"] for name in hosts] == [5, 5]


def test_link_local_addresses_serve_only_where_there_is_nothing_static(tmp_path: Path) -> None:
    hosts = {}
    for host in (1, 2):
        text = f"dev0 eth0 ACTIVE\n 3 v2 169.254.9.{host}"
        hosts[f"n{host}"] = node(tmp_path / str(host), text, {"eth0": [f"169.254.9.{host}/16"]})
    report = check_hosts(hosts)
    assert report["errors"] == []
    assert report["subnets"] == ["169.254.0.0/16"]
    assert sum("not static" in warning["found"] for warning in report["warnings"]) == 2


def test_link_local_twins_are_in_one_subnet_and_refused(tmp_path: Path) -> None:
    hosts = {}
    for host in (1, 2):
        text = f"dev0 eth0 ACTIVE\n 3 v2 169.254.9.{host}\ndev1 eth1 ACTIVE\n 3 v2 169.254.8.{host}"
        entries = {"eth0": [f"169.254.9.{host}/16"], "eth1": [f"169.254.8.{host}/16"]}
        hosts[f"n{host}"] = node(tmp_path / str(host), text, entries)
    report = check_hosts(hosts)
    assert faults(report) == ["ambiguous", "ambiguous"]
    assert "a subnet of its own" in report["errors"][0]["cure"]


def test_one_address_on_two_hosts_is_a_fault(tmp_path: Path) -> None:
    hosts = {"a": cabled(tmp_path / "a", 1, 0), "b": cabled(tmp_path / "b", 1, 0)}
    (error,) = check_hosts(hosts)["errors"]
    assert (error["host"], error["subject"]) == ("a, b", "address 10.0.0.1")


def test_addresses_named_one_by_one_must_pair_off(tmp_path: Path) -> None:
    hosts = {"a": cabled(tmp_path, 1, 0, 1), "b": cabled(tmp_path, 2, 0, 1)}
    named = {"a": ["10.0.0.1", "10.0.1.1"], "b": ["10.0.0.2", "10.0.1.2"]}
    assert check_hosts(hosts, addresses=named)["errors"] == []
    (error,) = check_hosts(hosts, addresses=named | {"b": ["10.0.1.2", "10.0.0.2"]})["errors"]
    assert error["expected"] == "the same subnets on every host"


def test_all_faults_of_all_hosts_come_together(tmp_path: Path) -> None:
    hosts = pair(tmp_path, one={"rails": 1, "carrier": 0}, other={"rails": 1, "mtu": 1500})
    hosts["spark-03"] = node(tmp_path / "3", "", {})
    report = check_hosts(hosts)
    assert [(error["host"], error["fault"]) for error in report["errors"]] == [
        ("spark-01", "port-down"),
        ("spark-03", "no-device"),
    ]
