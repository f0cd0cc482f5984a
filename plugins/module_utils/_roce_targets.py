# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Which addresses of a host are its rails: from addresses, from subnets, or from what the RDMA ports carry."""

from __future__ import annotations

from . import _roce_ip
from ._roce_problem import AMBIGUOUS, NO_ADDRESS, NO_DEVICE, PORT_DOWN, problem
from ._roce_table import address_table, gid_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._roce_types import Address, Facts, Pins, Port, Problem

    # The interface that holds an address, and the address.
    Target = tuple[str, Address]

SUBNET_CURE = "give each interface a subnet of its own (playbooks/fabric.yml --check prints a netplan file)"
ADDRESS_CURE = "give the interface a static IPv4 address (playbooks/fabric.yml --check prints a netplan file)"
CABLE_CURE = "check the cable and the peer's port; `fabric-env show` lists the ports"


def ports_of(facts: Facts, netdev: str) -> list[Port]:
    """the RDMA ports that serve an interface: its own, or those in whose table it stands (VLAN, bond)"""
    return [
        port
        for port in facts["ports"]
        if netdev in port["netdevs"] or any(row["netdev"] == netdev for row in port["rows"])
    ]


def usable(facts: Facts, netdev: str, pins: Pins) -> list[Address]:
    """An interface's addresses that could carry a rail: static before link-local, primary first."""
    if pins["interfaces"] and netdev not in pins["interfaces"]:
        return []
    entries = [entry for entry in facts["netdevs"][netdev]["addresses"] if _roce_ip.is_usable(entry["address"])]
    return sorted(entries, key=lambda entry: (_roce_ip.is_link_local(entry["address"]), entry["secondary"]))


def _by_kind(facts: Facts, netdev: str) -> tuple[bool, str]:
    return facts["netdevs"][netdev]["kind"] == "vlan", netdev


def from_addresses(facts: Facts, addresses: list[str], pins: Pins) -> tuple[list[Target], list[Problem]]:
    """the interface of each address. Where two hold it, the port itself comes before a VLAN on it"""
    targets: list[Target] = []
    errors: list[Problem] = []
    host = facts["hostname"]
    for address in addresses:
        holders = [
            (netdev, entry)
            for netdev in sorted(facts["netdevs"], key=lambda name: _by_kind(facts, name))
            for entry in facts["netdevs"][netdev]["addresses"]
            if entry["address"] == address and (not pins["interfaces"] or netdev in pins["interfaces"])
        ]
        if holders:
            targets.append(holders[0])
        else:
            expected = "an interface that holds it"
            errors.append(problem(host, f"address {address}", address_table(facts), expected, ADDRESS_CURE, NO_ADDRESS))
    return targets, errors


def from_subnets(facts: Facts, subnets: list[str], pins: Pins) -> tuple[list[Target], list[Problem]]:
    """This host's address in each subnet, on an interface that RDMA serves."""
    targets: list[Target] = []
    errors: list[Problem] = []
    host = facts["hostname"]
    for subnet in subnets:
        inside = [
            (netdev, entry)
            for netdev in sorted(facts["netdevs"], key=lambda name: _by_kind(facts, name))
            for entry in usable(facts, netdev, pins)
            if _roce_ip.contains(subnet, entry["address"])
        ]
        served = [(netdev, entry) for netdev, entry in inside if ports_of(facts, netdev)]
        names = sorted({netdev for netdev, _entry in served})
        subject = f"subnet {subnet}"
        if len(names) > 1:
            found = " and ".join(f"{netdev} {entry['address']}" for netdev, entry in served)
            errors.append(problem(host, subject, found, "one interface in each subnet", SUBNET_CURE, AMBIGUOUS))
        elif served:
            netdev, entry = served[0]
            # A tree of sysfs alone does not tell the prefix; the subnet that was asked for does.
            prefix = entry["prefix"] if entry["prefix"] is not None else _roce_ip.parse_subnet(subnet)[1]
            targets.append((netdev, {**entry, "prefix": prefix}))
        elif inside:
            errors.append(unserved(facts, *inside[0]))
        else:
            errors.append(
                problem(host, subject, address_table(facts), "an address in that subnet", ADDRESS_CURE, NO_ADDRESS)
            )
    return targets, errors


def from_ports(facts: Facts, pins: Pins) -> tuple[list[Target], list[Problem]]:
    """the first address of every RDMA port that has a link, in the order of the subnets"""
    targets: list[Target] = []
    down: list[Port] = []
    for port in facts["ports"]:
        if pins["devices"] and port["device"] not in pins["devices"]:
            continue
        if port["state"] != "ACTIVE":
            down.append(port)
            continue
        netdevs = set(port["netdevs"]) | {row["netdev"] for row in port["rows"] if row["netdev"]}
        entries = [
            (netdev, entry)
            for netdev in sorted(netdevs & set(facts["netdevs"]), key=lambda name: _by_kind(facts, name))
            for entry in usable(facts, netdev, pins)
            if facts["netdevs"][netdev]["kind"] != "bridge"
        ]
        if entries and entries[0] not in targets:
            targets.append(min(entries, key=lambda item: _roce_ip.is_link_local(item[1]["address"])))
    if targets:
        return sorted(targets, key=lambda item: (item[1]["dynamic"], _roce_ip.to_int(item[1]["address"]))), []
    host, table = facts["hostname"], gid_table(facts["ports"])
    if down and len(down) == len(facts["ports"]):
        return [], [problem(host, "RDMA ports", table, "a port that is ACTIVE", CABLE_CURE, PORT_DOWN)]
    subject = "RDMA ports " + ", ".join(sorted({port["device"] for port in facts["ports"] if port not in down}))
    return [], [problem(host, subject, table, "an IPv4 address on such a port", ADDRESS_CURE, NO_ADDRESS)]


def unserved(facts: Facts, netdev: str, entry: Address) -> Problem:
    """the address is there, but on an interface that has no RDMA: a management network, a docker bridge"""
    info = facts["netdevs"][netdev]
    found = f"on {netdev} ({info['kind']}), which no RDMA device serves; RDMA is on:\n{gid_table(facts['ports'])}"
    expected = "an interface of an RDMA device"
    return problem(
        facts["hostname"], f"address {entry['address']}", found, expected, "use the fabric's address", NO_DEVICE
    )
