# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The environment of NCCL, Gloo and vLLM for chosen rails, and what NCCL would do with it."""

from __future__ import annotations

from . import _roce_ip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._roce_types import Rail, Row

INDEX = "NCCL_IB_GID_INDEX"
RANGE = ("NCCL_IB_ADDR_FAMILY", "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_ADDR_RANGE")
# All that this code may set: what is inherited under these names is dropped before.
NAMES = (
    "NCCL_NET",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    INDEX,
    *RANGE,
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "VLLM_HOST_IP",
)
# Limits of NCCL's list parser.
HCA_ENTRIES, HCA_BYTES = 32, 63


def version(row: Row) -> int:
    """The RoCE version as NCCL reads it; -1 where the type is unreadable."""
    return {"IB/RoCE v1": 1, "RoCE v1": 1, "RoCE v2": 2}.get(row["type"], -1)


def nccl_choice(rows: list[Row], subnet: str) -> int:
    """The index NCCL (2.21 and newer) takes by itself for AF_INET, version 2 and a range.

    It walks the table with a current best, which begins as slot 0 whatever that holds; so a version 2 row of another
    subnet in slot 0 is never given up, and the answer can be wrong although the right row exists.
    """
    number, prefix = _roce_ip.parse_subnet(subnet)
    mask = _roce_ip.mask(prefix)
    current = next((row for row in rows if row["index"] == 0), None)
    for row in sorted(rows, key=lambda row: row["index"]):
        if row["index"] == 0 or not row["address"]:
            continue
        new_family = current is None or not current["address"]
        new_version = current is not None and version(current) != version(row) and version(row) == 2
        if (new_family or new_version) and _roce_ip.to_int(row["address"]) & mask == number:
            current = row
    return current["index"] if current else 0


def leading_range(rails: list[Rail]) -> str | None:
    """A range under which NCCL takes the chosen row on every rail, or None where there is none.

    The subnets' own cover is tried first because it is the same on every host, the addresses' cover, which leaves
    more out, after it.
    """
    subnets = [rail["subnet"] or f"{rail['address']}/32" for rail in rails]
    for candidate in (_roce_ip.cover(subnets), _roce_ip.cover([f"{rail['address']}/32" for rail in rails])):
        if all(nccl_choice(rail["rows"], candidate) == rail["gid_index"] for rail in rails):
            return candidate
    return None


def environment(rails: list[Rail], index: int | None, address_range: str | None) -> dict[str, str]:
    """The variables for rails whose common index, or whose range, is known."""
    first = rails[0]
    result = {
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "=" + ",".join(f"{rail['device']}:{rail['port']}" for rail in rails),
        "NCCL_SOCKET_IFNAME": f"={first['netdev']}",
        "GLOO_SOCKET_IFNAME": first["netdev"],
        "VLLM_HOST_IP": first["address"],
    }
    if index is not None:
        result[INDEX] = str(index)
    elif address_range is not None:
        result |= dict(zip(RANGE, ("AF_INET", "2", address_range), strict=True))
    return result


def single(address: str, netdev: str) -> dict[str, str]:
    """The variables of a deployment on one node: no fabric, and nothing that looks for one."""
    result = {"NCCL_IB_DISABLE": "1", "VLLM_HOST_IP": address}
    if netdev:
        result |= {"NCCL_SOCKET_IFNAME": f"={netdev}", "GLOO_SOCKET_IFNAME": netdev}
    return result
