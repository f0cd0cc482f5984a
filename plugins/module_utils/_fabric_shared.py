# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Finds the rails of a group of hosts with nothing told: the subnets that all of them have on an ACTIVE RDMA port."""

from __future__ import annotations

from . import _roce_ip, _roce_pins, _roce_targets
from ._roce_problem import AMBIGUOUS, CONFIG, NO_ADDRESS, PIN, PORT_DOWN, problem
from ._roce_resolve import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypedDict

    from ._roce_types import Facts, Problem

    class Shared(TypedDict):
        """the rails' subnets in order; errors where there are none"""

        subnets: list[str]
        errors: list[Problem]
        warnings: list[Problem]


class Candidate:
    """An address of one host that could carry a rail."""

    __slots__ = ("address", "netdev", "port", "subnet", "vlan")

    def __init__(self, subnet: str, address: str, netdev: str, port: tuple[str, int], vlan: bool) -> None:
        self.subnet, self.address, self.netdev, self.port, self.vlan = subnet, address, netdev, port, vlan


def candidates(facts: Facts, pins: Mapping[str, object] | None) -> list[Candidate]:
    """the addresses on ACTIVE RDMA ports, as far as the host's pins allow them"""
    pinned, _errors = _roce_pins.normalise(pins, facts["hostname"])
    result = []
    for netdev, info in facts["netdevs"].items():
        ports = [
            port
            for port in _roce_targets.ports_of(facts, netdev)
            if port["state"] == "ACTIVE" and (not pinned["devices"] or port["device"] in pinned["devices"])
        ]
        if not ports or info["kind"] == "bridge" or info["carrier"] is False:
            continue
        place = (ports[0]["device"], ports[0]["port"])
        for entry in _roce_targets.usable(facts, netdev, pinned):
            if pinned["addresses"] and entry["address"] not in pinned["addresses"]:
                continue
            # Without a prefix (a tree of sysfs alone) the usual one stands in.
            subnet = _roce_ip.network(entry["address"], 24 if entry["prefix"] is None else entry["prefix"])
            result.append(Candidate(subnet, entry["address"], netdev, place, info["kind"] == "vlan"))
    return result


def shared_subnets(hosts: Mapping[str, Facts], pins: Mapping[str, Mapping[str, object]]) -> Shared:
    """the subnets every host has, one for each port, or why there are none"""
    found = {name: candidates(facts, pins.get(name)) for name, facts in hosts.items()}
    sets = [{candidate.subnet for candidate in own} for own in found.values()]
    common = set.intersection(*sets) if sets else set()
    if not common:
        return {"subnets": [], "errors": _why_none(hosts, pins, found), "warnings": []}
    subnets, warnings = _one_a_port(common, found)
    return {"subnets": subnets, "errors": [], "warnings": warnings + _half_shared(common, found)}


def _one_a_port(common: set[str], found: Mapping[str, list[Candidate]]) -> tuple[list[str], list[Problem]]:
    """Static before link-local, ports before VLANs on them; a second subnet on a used port adds nothing."""
    vlans = {candidate.subnet for own in found.values() for candidate in own if candidate.vlan}
    order = sorted(common, key=lambda s: (_roce_ip.is_link_local(s), s in vlans, _roce_ip.parse_subnet(s)))
    used: set[tuple[str, tuple[str, int]]] = set()
    chosen: list[str] = []
    warnings = []
    for subnet in order:
        places = {(host, item.port) for host, own in found.items() for item in own if item.subnet == subnet}
        if places & used:
            hosts = ", ".join(sorted({host for host, _port in places & used}))
            kept = f"{', '.join(chosen)} is used"
            cure = "name the rails' subnets in the inventory if the other one is meant"
            if not _roce_ip.is_link_local(subnet):
                warnings.append(problem(hosts, f"subnet {subnet}", f"on a port of a rail: {kept}", "one a port", cure))
        elif not (chosen and _roce_ip.is_link_local(subnet)):
            chosen.append(subnet)
            used |= places
    return chosen, warnings


def _half_shared(common: set[str], found: Mapping[str, list[Candidate]]) -> list[Problem]:
    """Subnets on RDMA ports that some hosts lack: most often a rail with one address forgotten."""
    warnings = []
    for subnet in sorted({item.subnet for own in found.values() for item in own} - common):
        having = [host for host, own in found.items() if any(item.subnet == subnet for item in own)]
        lacking = ", ".join(host for host in found if host not in having)
        text = f"only on {', '.join(having)}: not used as a rail"
        cure = f"give {lacking} an address in it, if it is meant to be a rail"
        warnings.append(problem(lacking, f"subnet {subnet}", text, "on an ACTIVE RDMA port of every host", cure))
    return warnings


def _why_none(
    hosts: Mapping[str, Facts],
    pins: Mapping[str, Mapping[str, object]],
    found: Mapping[str, list[Candidate]],
) -> list[Problem]:
    """Each host's own fault first; only where every host is sound by itself, what is wrong between them."""
    errors: list[Problem] = []
    for name, own in found.items():
        alone = resolve(hosts[name], pins=pins.get(name))["errors"]
        if own:
            alone = [error for error in alone if error["fault"] in (CONFIG, PIN)]
        errors += alone if own or alone else [_no_candidate(name)]
    if errors:
        return errors
    table = "; ".join(f"{name}: {_listed(own)}" for name, own in found.items())
    cure, fault = _between(found)
    subject = "subnets on ACTIVE RDMA ports"
    return [problem(", ".join(found), subject, table, "one that every host has", cure, fault)]


def _no_candidate(name: str) -> Problem:
    found, expected = "no address on a port with a link", "an address on an ACTIVE RDMA port"
    return problem(name, "RDMA ports", found, expected, _roce_targets.CABLE_CURE, PORT_DOWN)


def _listed(own: list[Candidate]) -> str:
    return ", ".join(f"{item.subnet} ({item.netdev} {item.address})" for item in own)


def _between(found: Mapping[str, list[Candidate]]) -> tuple[str, str]:
    owners: dict[str, set[str]] = {}
    networks: dict[int, set[str]] = {}
    for host, own in found.items():
        for item in own:
            owners.setdefault(item.subnet, set()).add(host)
            networks.setdefault(_roce_ip.parse_subnet(item.subnet)[0], set()).add(item.subnet)
    if any(len(subnets) > 1 for subnets in networks.values()):
        return "the prefix lengths differ: give every host the same one", AMBIGUOUS
    paired = {host for hosts in owners.values() if len(hosts) > 1 for host in hosts}
    if len(found) > 2 and paired == set(found):
        return (
            "the hosts are cabled in pairs, as a ring or a chain. Ray and NCCL need one address of each host that all "
            "the others reach: join the hosts by a switch, or deploy on two of them",
            AMBIGUOUS,
        )
    return (
        "give the hosts addresses in one subnet (playbooks/fabric.yml --check prints a netplan file)",
        NO_ADDRESS,
    )
