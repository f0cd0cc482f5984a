# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of the field, each read from a sysfs tree, with both answers a kernel may give for an empty slot."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NamedTuple

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce import read, resolve

from tests.unit.plugins.module_utils import fabric_trees as trees


class Table(NamedTuple):
    """A table, what is asked of it, and the right answer."""

    text: str
    address: str
    device: str
    slot: int


FE80 = "0 v1 fe80:1, 1 v2 fe80:1"
ONE, TWO = "rocep1s0f1 enp1s0f1np1 ACTIVE", "mlx5_0 ens1 ACTIVE"
TABLES = {
    "T1": Table(f"{TWO}\n {FE80}, 2 v1 200.0.209.6, 3 v2 200.0.209.6", "200.0.209.6", "mlx5_0", 3),
    "T2": Table(f"{ONE}\n {FE80}, 2 v1 192.168.100.1, 3 v2 192.168.100.1", "192.168.100.1", "rocep1s0f1", 3),
    "T3": Table(
        f"{ONE}\n {FE80}, 2 v1 fe80:2, 3 v2 fe80:2, 4 v1 192.168.100.2, 5 v2 192.168.100.2",
        "192.168.100.2",
        "rocep1s0f1",
        5,
    ),
    "T3b": Table(
        f"{ONE}\n {FE80}, 2 v1 fe80:2, 3 v2 fe80:2, 4 v1 192.168.100.2, 5 ? 192.168.100.2, 6 v2 192.168.100.2",
        "192.168.100.2",
        "rocep1s0f1",
        6,
    ),
    "T4": Table(
        f"{TWO}\n {FE80}, 2 v1 10.200.1.10, 3 v2 10.200.1.10, 4 v1 2001:db8:1, 5 v2 2001:db8:1",
        "10.200.1.10",
        "mlx5_0",
        3,
    ),
    "T5": Table(f"roceP2p1s0f1 enP2p1s0f1np1 ACTIVE\n {FE80}, 3 empty, 4 v2 10.0.0.1", "10.0.0.1", "roceP2p1s0f1", 4),
    "T7": Table("devA netA ACTIVE\n 0 v1 10.0.0.1, 3 v2 10.0.0.1", "10.0.0.1", "devA", 3),
    "T9": Table(f"devA netA ACTIVE\n {FE80}, 3 v2 10.0.0.1\ndevB netB DOWN\n {FE80}", "10.0.0.1", "devA", 3),
    "T10": Table(f"{TWO}\n {FE80}, 3 v2 10.0.0.9, 5 v2 10.0.0.5", "10.0.0.5", "mlx5_0", 5),
    "T12": Table("rxe0 eth1 ACTIVE\n 0 v2 fe80:1, 1 v2 1.1.1.2", "1.1.1.2", "rxe0", 1),
    "T13": Table(
        f"{ONE}\n {FE80}, 3 v2 192.168.100.1, 5 v2 192.168.100.1 [enp1s0f1np1.100]", "192.168.100.1", "rocep1s0f1", 3
    ),
    "T14": Table(f"{ONE}\n {FE80}, 3 v2 192.168.100.1, 10 v2 192.168.100.1", "192.168.100.1", "rocep1s0f1", 3),
    "T15": Table(f"{TWO}\n {FE80}, 3 v2 169.254.194.225", "169.254.194.225", "mlx5_0", 3),
}


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOENT], ids=["EINVAL", "ENOENT"])
@pytest.mark.parametrize("name", TABLES)
def test_the_right_row_of_a_table(name: str, code: int, tmp_path: Path) -> None:
    table = TABLES[name]
    trees.tree(tmp_path, table.text, slots=32)
    result = resolve(trees.facts(tmp_path, code), addresses=[table.address])
    assert result["errors"] == []
    (rail,) = result["rails"]
    assert (rail["device"], rail["gid_index"]) == (table.device, table.slot)
    assert result["environment"]["NCCL_IB_GID_INDEX"] == str(table.slot)
    assert result["environment"]["NCCL_IB_HCA"] == f"={table.device}:1"


@pytest.mark.parametrize("name", sorted(set(TABLES) - {"T10"}))
def test_the_right_row_with_nothing_asked(name: str, tmp_path: Path) -> None:
    table = TABLES[name]
    result = resolve(trees.facts(trees.tree(tmp_path, table.text, slots=32)))
    assert [(rail["device"], rail["gid_index"]) for rail in result["rails"]] == [(table.device, table.slot)]


def test_t8_twins_without_a_common_index_are_led_by_range(tmp_path: Path) -> None:
    text = f"devA netA ACTIVE\n {FE80}, 3 v2 10.0.0.1\ndevE netE ACTIVE\n {FE80}, 4 v2 fe80:3, 6 v2 10.0.1.1"
    trees.addresses(trees.tree(tmp_path, text), {"netA": ["10.0.0.1/24"], "netE": ["10.0.1.1/24"]})
    result = resolve(trees.facts(tmp_path))
    assert [(rail["device"], rail["gid_index"]) for rail in result["rails"]] == [("devA", 3), ("devE", 6)]
    assert "NCCL_IB_GID_INDEX" not in result["environment"]
    assert (
        result["environment"]
        | {
            "NCCL_IB_HCA": "=devA:1,devE:1",
            "NCCL_IB_ADDR_FAMILY": "AF_INET",
            "NCCL_IB_ROCE_VERSION_NUM": "2",
            "NCCL_IB_ADDR_RANGE": "10.0.0.0/23",
        }
        == result["environment"]
    )


def test_t9_the_port_without_a_link_is_no_rail(tmp_path: Path) -> None:
    result = resolve(trees.facts(trees.tree(tmp_path, TABLES["T9"].text)))
    assert [rail["device"] for rail in result["rails"]] == ["devA"]
    assert result["warnings"] == []


def test_t10_an_alias_in_the_same_subnet_is_told_apart_by_its_address(tmp_path: Path) -> None:
    trees.tree(tmp_path, TABLES["T10"].text)
    trees.addresses(tmp_path, {"ens1": ["10.0.0.9/24", "10.0.0.5/24"]})
    facts = trees.facts(tmp_path)
    assert resolve(facts, addresses=["10.0.0.5"])["rails"][0]["gid_index"] == 5
    assert resolve(facts, subnets=["10.0.0.0/24"])["rails"][0]["gid_index"] == 3, "the first address, not the alias"


def test_t11_ipv6_alone_is_refused_with_the_rows(tmp_path: Path) -> None:
    text = "bnxt_re0 ens5 ACTIVE\n 0 v1 fe80:1, 1 v2 fe80:1, 2 v1 2001:db8:1, 3 v2 2001:db8:1"
    result = resolve(trees.facts(trees.tree(tmp_path, text)))
    (error,) = result["errors"]
    assert error["fault"] == "no-address"
    assert "bnxt_re0" in error["subject"]
    assert "IPv4" in error["expected"]
    assert error["found"].count("2001:0db8") == 2
    assert result["environment"] == {}


def test_t13_the_vlan_itself_may_be_the_rail(tmp_path: Path) -> None:
    trees.tree(tmp_path, TABLES["T13"].text)
    trees.interface(tmp_path, "enp1s0f1np1.100", kind="vlan")
    both = {"enp1s0f1np1": ["10.9.9.9/24"], "enp1s0f1np1.100": ["192.168.100.1/24"]}
    result = resolve(trees.facts(trees.addresses(tmp_path, both)), addresses=["192.168.100.1"])
    (rail,) = result["rails"]
    assert (rail["netdev"], rail["gid_index"]) == ("enp1s0f1np1.100", 5)


def test_t14_the_stale_duplicate_is_told(tmp_path: Path) -> None:
    result = resolve(trees.facts(trees.tree(tmp_path, TABLES["T14"].text, slots=32)))
    assert result["rails"][0]["indices"] == [3, 10]
    assert [warning["found"] for warning in result["warnings"]] == ["rows of that address at 3, 10"]


def test_t15_a_link_local_address_is_used_and_told(tmp_path: Path) -> None:
    result = resolve(trees.facts(trees.tree(tmp_path, TABLES["T15"].text)))
    assert ["not static" in warning["found"] for warning in result["warnings"]] == [True]


def test_a_slot_that_refuses_its_gid_is_passed_over(tmp_path: Path) -> None:
    trees.tree(tmp_path, TABLES["T3b"].text)
    reader = trees.refusing(errno.EINVAL, "gids/5", "types/5", "ndevs/5")
    rows = read(str(tmp_path), reader)["ports"][0]["rows"]
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4, 6]
