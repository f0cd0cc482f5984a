# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What works on a host, but slower or less surely than it could."""

from __future__ import annotations

from . import _roce_env, _roce_ip
from ._roce_problem import problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._roce_types import Facts, Problem, Rail

# A Spark's QSFP port: 200 Gb/s, four PCIe lanes to each of the two functions behind it, jumbo frames.
SPEED_MBPS, LANES, MTU = 200_000, 4, 9000


def of_host(facts: Facts, rails: list[Rail], environment: Mapping[str, str]) -> list[Problem]:
    """All warnings about one host's rails."""
    host = facts["hostname"]
    warnings = [warning for rail in rails for warning in of_rail(facts, rail)]
    if rails:
        warnings += _bare_ports(facts, rails)
    for name, value in facts["nccl_conf"].items():
        if name in _roce_env.NAMES and environment and name not in environment:
            found, cure = (
                f"{name}={value}",
                "take the line out of nccl.conf: it speaks where the environment is silent",
            )
            warnings.append(problem(host, "nccl.conf", found, f"no {name}", cure))
    return warnings


def of_rail(facts: Facts, rail: Rail) -> list[Problem]:
    """the warnings about one rail"""
    host, warnings = facts["hostname"], []
    where = f"rail {rail['address']} on {rail['netdev']} ({rail['device']})"

    def warn(found: str, expected: str, cure: str) -> None:
        warnings.append(problem(host, where, found, expected, cure))

    entries = [e for e in facts["netdevs"][rail["netdev"]]["addresses"] if e["address"] == rail["address"]]
    if _roce_ip.is_link_local(rail["address"]):
        cure = "give the interface a static address (playbooks/fabric.yml): this one is another after a restart"
        warn("a link-local address, which is not static", "a static address", cure)
    elif any(entry["dynamic"] for entry in entries):
        warn("an address with a lifetime (DHCP)", "a static address", "give the interface a static address")
    if len(rail["indices"]) > 1:
        slots = ", ".join(map(str, rail["indices"]))
        warn(f"rows of that address at {slots}", "one row", f"Index {rail['gid_index']} is used; the others are stale")
    if rail["speed_mbps"] is not None and rail["speed_mbps"] < SPEED_MBPS:
        found = f"the link runs at {rail['speed_mbps'] / 1000:g} Gb/s"
        warn(found, f"{SPEED_MBPS // 1000} Gb/s", "check cable, switch port and its configured speed")
    width = rail["pcie_width"]
    lanes = rail["pcie_max_width"] or LANES
    if width and width < lanes:
        cure = "update the network card's firmware (fwupdmgr) and power-cycle the node"
        warn(f"a PCIe link of width {width}", f"width {lanes}", cure)
    if rail["mtu"] is not None and rail["mtu"] < MTU:
        warn(
            f"MTU {rail['mtu']}",
            f"MTU {MTU}",
            "set it on every host (playbooks/fabric.yml --check prints a netplan file)",
        )
    return warnings


def _bare_ports(facts: Facts, rails: list[Rail]) -> list[Problem]:
    """Ports with a link whose interface has no IPv4 address: bandwidth that nothing uses."""
    used = {(rail["device"], rail["port"]) for rail in rails}
    warnings = []
    for port in facts["ports"]:
        netdevs = [name for name in port["netdevs"] if name in facts["netdevs"]]
        netdevs = netdevs or sorted({row["netdev"] for row in port["rows"]} & set(facts["netdevs"]))
        bare = not any(facts["netdevs"][name]["addresses"] for name in netdevs)
        if (port["device"], port["port"]) not in used and port["state"] == "ACTIVE" and bare:
            share = f"{len(rails)} of {len(rails) + 1} rails"
            found = f"ACTIVE, but {', '.join(netdevs) or 'its interface'} has no IPv4 address: {share}" + (
                ", about half the bandwidth" if len(rails) == 1 else ""
            )
            cure = "give the interface an address in a subnet of its own, on every host (playbooks/fabric.yml)"
            warnings.append(problem(facts["hostname"], f"RDMA port {port['device']}", found, "an address", cure))
    return warnings
