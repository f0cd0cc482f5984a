# SPDX-License-Identifier: GPL-3.0-or-later
"""One host: which rails, which index, which environment, and every reason to refuse."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _roce_env
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce import read, resolve
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce_types import Resolution

from tests.unit.plugins.module_utils import fabric_trees as trees

FE80 = "0 v1 fe80:1, 1 v2 fe80:1"


def faults(result: Resolution) -> list[str]:
    return [error["fault"] for error in result["errors"]]


def test_both_twins_of_a_spark(tmp_path: Path) -> None:
    result = resolve(trees.spark(tmp_path, 1))
    assert result["errors"] == []
    assert result["warnings"] == []
    assert result["environment"] == {
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "=rocep1s0f1:1,roceP2p1s0f1:1",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_SOCKET_IFNAME": "=enp1s0f1np1",
        "GLOO_SOCKET_IFNAME": "enp1s0f1np1",
        "VLLM_HOST_IP": "192.168.100.1",
    }
    first = result["rails"][0]
    assert (first["subnet"], first["mtu"], first["speed_mbps"], first["carrier"]) == (
        "192.168.100.0/24",
        9000,
        200000,
        True,
    )


def test_c01_a_pin_is_checked_against_the_live_table(tmp_path: Path) -> None:
    facts = trees.spark(tmp_path, 2, index=5)
    result = resolve(facts, pins={"index": 3})
    assert faults(result) == ["pin"]
    assert "192.168.100.2" in result["errors"][0]["found"], "the table"
    assert "5 would be taken" in result["errors"][0]["cure"]
    assert result["environment"] == {}
    assert resolve(facts, pins={"index": 5})["environment"]["NCCL_IB_GID_INDEX"] == "5"


def test_c02_the_next_look_takes_the_row_that_moved(tmp_path: Path) -> None:
    table = tmp_path / "sys/class/infiniband/rocep1s0f1/ports/1"
    assert resolve(trees.spark(tmp_path, 1, rails=1))["rails"][0]["gid_index"] == 3
    for name in ("gid_attrs/types", "gid_attrs/ndevs"):
        (table / name / "3").rename(table / name / "4")
    trees.put(table / "gids/4", trees.gid("192.168.100.1"))
    facts = read(str(tmp_path), trees.refusing(errno.EINVAL, "gids/3"))
    assert resolve(facts)["rails"][0]["gid_index"] == 4


@pytest.mark.parametrize(
    "value", ["", "auto", "010", "03", "0x3", " 3", "3 ", "-1", "³", "256", "3.0", True, 3.0, -1, []]
)
def test_c05_an_index_that_nccl_would_misread_reaches_no_environment(tmp_path: Path, value: Any) -> None:
    result = resolve(trees.spark(tmp_path, 1), pins={"index": value})
    assert faults(result) == ["config"]
    assert repr(value) in result["errors"][0]["found"]
    assert result["environment"] == {}


@pytest.mark.parametrize("value", [3, "3"])
def test_a_plain_decimal_index_is_taken(tmp_path: Path, value: Any) -> None:
    assert resolve(trees.spark(tmp_path, 1), pins={"index": value})["environment"]["NCCL_IB_GID_INDEX"] == "3"


def test_c07_link_local_rows_alone_are_an_error(tmp_path: Path) -> None:
    trees.tree(tmp_path, f"rocep1s0f1 enp1s0f1np1 ACTIVE\n {FE80}")
    trees.addresses(tmp_path, {"enp1s0f1np1": ["192.168.100.1/24"]})
    result = resolve(trees.facts(tmp_path), subnets=["192.168.100.0/24"])
    assert faults(result) == ["no-row"]
    assert "fe80" in result["errors"][0]["found"]
    assert "no IPv4 row" in result["errors"][0]["cure"]


def test_a_row_of_version_1_alone_is_an_error(tmp_path: Path) -> None:
    facts = trees.facts(trees.tree(tmp_path, f"rocep1s0f1 enp1s0f1np1 ACTIVE\n {FE80}, 2 v1 192.168.100.1"))
    assert faults(resolve(facts)) == ["no-row"]


def test_c08_one_rail_without_address_works_with_a_warning(tmp_path: Path) -> None:
    result = resolve(trees.spark(tmp_path, 1, rails=1))
    assert result["errors"] == []
    assert [rail["device"] for rail in result["rails"]] == ["rocep1s0f1"]
    (warning,) = result["warnings"]
    assert "roceP2p1s0f1" in warning["subject"]
    assert "half the bandwidth" in warning["found"]


@pytest.mark.parametrize(("rate", "figure"), [(100, "100 Gb/s"), (10, "10 Gb/s"), (2.5, "2 Gb/s")])
def test_c09_a_slow_link_is_told_with_its_figure(tmp_path: Path, rate: float, figure: str) -> None:
    result = resolve(trees.spark(tmp_path, 1, rails=1, rate=rate))
    assert any(figure in warning["found"] for warning in result["warnings"])
    assert result["errors"] == []


def test_c11_no_carrier_is_what_time_may_mend(tmp_path: Path) -> None:
    result = resolve(trees.spark(tmp_path, 1, carrier=0), subnets=["192.168.100.0/24"])
    assert faults(result) == ["port-down"]
    assert "enp1s0f1np1 has no carrier" in result["errors"][0]["found"]


def test_c13_no_device_is_an_error(tmp_path: Path) -> None:
    trees.addresses(tmp_path, {"enP7s7": ["10.0.0.1/24"]})
    result = resolve(trees.facts(tmp_path), subnets=["10.0.0.0/24"])
    assert faults(result) == ["no-device"]
    assert "no fall-back to TCP" in result["errors"][0]["cure"]


def test_c14_a_narrow_pcie_link_points_to_the_firmware(tmp_path: Path) -> None:
    result = resolve(trees.spark(tmp_path, 1, rails=1, width=2))
    warning = next(warning for warning in result["warnings"] if "width" in warning["found"])
    assert (warning["found"], warning["expected"]) == ("a PCIe link of width 2", "width 4")
    assert "firmware" in warning["cure"]


def test_c14_without_a_maximum_the_sparks_four_lanes_are_expected(tmp_path: Path) -> None:
    result = resolve(trees.spark(tmp_path, 1, rails=1, width=2, max_width=""))
    assert any(warning["expected"] == "width 4" for warning in result["warnings"])


def test_an_address_on_the_management_network_is_refused(tmp_path: Path) -> None:
    for wanted in ({"addresses": ["10.0.0.1"]}, {"subnets": ["10.0.0.0/24"]}, {"subnets": ["172.17.0.0/16"]}):
        result = resolve(trees.spark(tmp_path, 1), **wanted)  # type: ignore[arg-type]
        assert faults(result) == ["no-device"], wanted
        assert "which no RDMA device serves" in result["errors"][0]["found"]


def test_an_address_that_nobody_holds(tmp_path: Path) -> None:
    result = resolve(trees.spark(tmp_path, 1), addresses=["192.168.100.9"])
    assert faults(result) == ["no-address"]
    assert "enp1s0f1np1 192.168.100.1/24" in result["errors"][0]["found"]


def test_twins_in_one_subnet_are_a_fault(tmp_path: Path) -> None:
    trees.spark(tmp_path, 1)
    trees.addresses(tmp_path, {"enp1s0f1np1": ["192.168.100.1/23"], "enP2p1s0f1np1": ["192.168.101.1/23"]})
    facts = trees.facts(tmp_path)
    wanted: Any
    for wanted in ({}, {"addresses": ["192.168.100.1", "192.168.101.1"]}, {"subnets": ["192.168.100.0/23"]}):
        result = resolve(facts, **wanted)
        assert faults(result) == ["ambiguous"], wanted
        assert "enp1s0f1np1" in result["errors"][0]["found"]
        assert "enP2p1s0f1np1" in result["errors"][0]["found"]


def test_a_bridge_is_refused(tmp_path: Path) -> None:
    trees.tree(tmp_path, "rocep1s0f1 enp1s0f1np1 ACTIVE\n 3 v2 192.168.100.1 [br0]")
    trees.interface(tmp_path, "br0", kind="bridge")
    trees.addresses(tmp_path, {"br0": ["192.168.100.1/24"]})
    result = resolve(trees.facts(tmp_path), subnets=["192.168.100.0/24"])
    assert faults(result) == ["ambiguous"]
    assert result["errors"][0]["found"] == "br0 is a bridge"


def test_a_bond_is_a_rail_on_the_port_with_a_link(tmp_path: Path) -> None:
    text = "mlx5_0 p0 DOWN\n 3 v2 10.1.0.1 [bond0]\nmlx5_1 p1 ACTIVE\n 4 v2 10.1.0.1 [bond0]"
    trees.interface(trees.tree(tmp_path, text), "bond0", kind="bond")
    trees.addresses(tmp_path, {"bond0": ["10.1.0.1/24"]})
    result = resolve(trees.facts(tmp_path), subnets=["10.1.0.0/24"])
    assert [(rail["device"], rail["netdev"], rail["gid_index"]) for rail in result["rails"]] == [("mlx5_1", "bond0", 4)]


def test_infiniband_is_refused(tmp_path: Path) -> None:
    facts = trees.spark(tmp_path, 1, rails=1, link_layer="InfiniBand")
    assert faults(resolve(facts)) == ["ambiguous"]


def test_pins_choose_among_rails_and_must_be_met(tmp_path: Path) -> None:
    facts = trees.spark(tmp_path, 1)
    for pins in ({"interface": "enP2p1s0f1np1"}, {"device": ["roceP2p1s0f1"]}, {"address": "192.168.101.1"}):
        result = resolve(facts, pins=pins)
        assert [rail["device"] for rail in result["rails"]] == ["roceP2p1s0f1"], pins
    for pins in ({"interface": "eth9"}, {"device": "mlx5_9"}, {"interface": ["enp1s0f1np1", "enP7s7"]}):
        assert faults(resolve(facts, pins=pins)) == ["pin"], pins
    assert faults(resolve(facts, pins={"address": "192.168.100.77"})) == ["no-address"]
    assert faults(resolve(facts, pins={"speed": 1, "address": "x"})) == ["config", "config"]


def test_gid_modes(tmp_path: Path) -> None:
    facts = trees.spark(tmp_path / "a", 1)
    assert "NCCL_IB_GID_INDEX" not in resolve(facts, gid_mode="none")["environment"]
    assert resolve(facts, gid_mode="none")["environment"]["NCCL_IB_ADDR_RANGE"] == "192.168.100.0/23"
    assert resolve(facts, gid_mode="pin")["environment"]["NCCL_IB_GID_INDEX"] == "3"
    assert faults(resolve(facts, gid_mode="sometimes")) == ["config"]
    trees.tree(tmp_path / "b", "a ea ACTIVE\n 3 v2 10.0.0.1\nb eb ACTIVE\n 5 v2 10.0.1.1")
    drifted = trees.facts(tmp_path / "b")
    assert faults(resolve(drifted, gid_mode="pin")) == ["no-common-index"]
    assert resolve(drifted)["errors"] == []


def test_a_range_that_cannot_lead_nccl_is_refused(tmp_path: Path) -> None:
    # NCCL starts from slot 0 and never gives up a version 2 row there.
    trees.tree(tmp_path, "a ea ACTIVE\n 0 v2 10.9.9.9, 3 v2 10.0.0.1\nb eb ACTIVE\n 5 v2 10.0.1.1")
    trees.addresses(tmp_path, {"ea": ["10.0.0.1/24"], "eb": ["10.0.1.1/24"]})
    result = resolve(trees.facts(tmp_path))
    assert faults(result) == ["no-common-index"]
    assert result["errors"][0]["subject"] == "NCCL_IB_ADDR_RANGE"


def test_the_range_shrinks_to_the_addresses_where_the_subnets_hold_another_row(tmp_path: Path) -> None:
    trees.tree(tmp_path, "a ea ACTIVE\n 1 v2 10.0.0.200, 3 v2 10.0.0.1")
    trees.addresses(tmp_path, {"ea": ["10.0.0.1/24", "10.0.0.200/24"]})
    result = resolve(trees.facts(tmp_path), gid_mode="none")
    assert result["errors"] == []
    assert result["environment"]["NCCL_IB_ADDR_RANGE"] == "10.0.0.1/32"


def test_what_nccl_takes_by_itself() -> None:
    def row(index: int, kind: str, address: str) -> Any:
        return {"index": index, "type": trees.TYPES[kind], "gid": "", "address": address, "netdev": ""}

    fe80, v1, v2 = row(0, "v1", ""), row(2, "v1", "10.0.0.1"), row(3, "v2", "10.0.0.1")
    assert _roce_env.nccl_choice([fe80, v1, v2], "10.0.0.0/24") == 3
    assert _roce_env.nccl_choice([v2, row(9, "v2", "10.0.0.1")], "10.0.0.0/24") == 3
    assert _roce_env.nccl_choice([fe80, row(2, "v2", "10.0.5.1"), v2], "10.0.0.0/24") == 3
    assert _roce_env.nccl_choice([row(0, "v2", "10.0.5.1"), v2], "10.0.0.0/24") == 0
    assert _roce_env.nccl_choice([row(0, "v1", "10.0.5.1"), v2], "10.0.0.0/24") == 3


def test_nccl_conf_speaks_where_the_environment_is_silent(tmp_path: Path) -> None:
    trees.put(tmp_path / "etc/nccl.conf", "# tuned\nNCCL_IB_GID_INDEX=3\nNCCL_DEBUG=INFO\nNCCL_IB_HCA=mlx5_0")
    facts = trees.spark(tmp_path, 1)
    assert facts["nccl_conf"] == {"NCCL_IB_GID_INDEX": "3", "NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5_0"}
    assert resolve(facts)["warnings"] == [], "what the environment sets wins"
    (warning,) = resolve(facts, gid_mode="none")["warnings"]
    assert warning["found"] == "NCCL_IB_GID_INDEX=3"


def test_more_rails_than_nccl_reads_are_refused(tmp_path: Path) -> None:
    text = "\n".join(f"dev{n} eth{n} ACTIVE\n 3 v2 10.0.{n}.1" for n in range(33))
    assert faults(resolve(trees.facts(trees.tree(tmp_path, text, slots=1)))) == ["ambiguous"]


def test_bad_input_is_told_all_at_once(tmp_path: Path) -> None:
    result = resolve(trees.spark(tmp_path, 1), ["10.0.0.300", "127.0.0.1"], ["10.0.0.1/24", "x"])
    assert faults(result) == ["config"] * 4
    assert "meant is 10.0.0.0/24" in result["errors"][2]["found"]


def test_255_rows_on_4_devices_take_under_5_ms(tmp_path: Path) -> None:
    rows = [f"{slot} v2 10.{slot}.{slot}.{{n}}" for slot in range(255)]
    text = "\n".join(f"dev{n} eth{n} ACTIVE\n " + ", ".join(rows).format(n=n + 1) for n in range(4))
    facts = trees.facts(trees.tree(tmp_path, text, slots=1))
    assert [len(port["rows"]) for port in facts["ports"]] == [255] * 4
    wanted = [f"10.{200 + n}.{200 + n}.{n + 1}" for n in range(4)]

    def once() -> float:
        start = time.process_time()
        assert [rail["gid_index"] for rail in resolve(facts, addresses=wanted)["rails"]] == [200, 201, 202, 203]
        return time.process_time() - start

    assert min(once() for _ in range(5)) < 0.005


def test_overlapping_subnets_on_two_ports_are_a_fault(tmp_path: Path) -> None:
    trees.tree(tmp_path, "a ea ACTIVE\n 3 v2 10.0.0.1\nb eb ACTIVE\n 3 v2 10.0.1.1")
    trees.addresses(tmp_path, {"ea": ["10.0.0.1/16"], "eb": ["10.0.1.1/24"]})
    result = resolve(trees.facts(tmp_path))
    assert faults(result) == ["ambiguous"]
    assert result["errors"][0]["subject"] == "rails in 10.0.0.0/16"
