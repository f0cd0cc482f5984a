# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The fabric across hosts: which subnets are rails, and whether both ends of each rail fit together.

Pure: it takes each host's facts as `_roce.read` gives them, under the name the inventory has for the host.
"""

from __future__ import annotations

from . import _fabric_shared, _roce_ip
from ._roce_problem import AMBIGUOUS, problem
from ._roce_resolve import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._roce_types import Facts, HostsReport, Problem, Rail

MTU, SPEED = "mtu", "speed"


def check_hosts(
    hosts: Mapping[str, Facts],
    *,
    pins: Mapping[str, Mapping[str, object]] | None = None,
    addresses: Mapping[str, list[str]] | None = None,
    subnets: list[str] | None = None,
    gid_mode: str = "auto",
    min_speed_mbps: int = 0,
) -> HostsReport:
    """All errors and warnings of all hosts, and each host's rails in one order.

    Without `subnets` and `addresses` the rails are the subnets that every host has on an ACTIVE RDMA port. A host
    alone needs no rail. A host's pins may also lie in its facts, under `pins`.
    """
    addresses = addresses or {}
    pins = {name: found.get("pins") or (pins or {}).get(name) or {} for name, found in hosts.items()}
    facts: dict[str, Facts] = {name: {**found, "hostname": name} for name, found in hosts.items()}
    report: HostsReport = {"errors": [], "warnings": [], "rails": {}, "environment": {}, "subnets": list(subnets or [])}
    if not subnets and not all(addresses.get(name) for name in facts):
        shared = _fabric_shared.shared_subnets(facts, pins)
        report["subnets"] = shared["subnets"]
        report["warnings"] += shared["warnings"]
        if not shared["subnets"]:
            report["errors"] += shared["errors"] if len(facts) > 1 else []
            return report
    for name, found in facts.items():
        resolution = resolve(found, addresses.get(name), report["subnets"], gid_mode, pins.get(name))
        report["errors"] += resolution["errors"]
        report["warnings"] += resolution["warnings"]
        report["rails"][name] = resolution["rails"]
        report["environment"][name] = resolution["environment"]
    report["errors"] += _across(report["rails"], min_speed_mbps)
    report["warnings"] += _speeds_differ(report["rails"])
    return report


def _across(rails: Mapping[str, list[Rail]], min_speed_mbps: int) -> list[Problem]:
    errors = _same_addresses(rails) + _counts(rails)
    for subnet, ends in _by_subnet(rails).items():
        mtus = {rail["mtu"] for _host, rail in ends if rail["mtu"] is not None}
        if len(mtus) > 1:
            low = ", ".join(host for host, rail in ends if rail["mtu"] == min(mtus))
            cure = f"set MTU {max(mtus)} on every end and on the switch (playbooks/fabric.yml --check prints a file)"
            errors.append(problem(low, f"MTU in {subnet}", _ends(ends, "mtu"), "one MTU on all ends", cure, MTU))
    for host, own in rails.items():
        for rail in own:
            if rail["speed_mbps"] is not None and rail["speed_mbps"] < min_speed_mbps:
                found = f"{rail['speed_mbps'] / 1000:g} Gb/s"
                expected = f"at least {min_speed_mbps / 1000:g} Gb/s, as the inventory demands"
                cure = "check cable and switch port, or lower the floor"
                errors.append(problem(host, f"speed of {rail['netdev']}", found, expected, cure, SPEED))
    return errors


def _speeds_differ(rails: Mapping[str, list[Rail]]) -> list[Problem]:
    warnings = []
    for subnet, ends in _by_subnet(rails).items():
        speeds = {rail["speed_mbps"] for _host, rail in ends if rail["speed_mbps"] is not None}
        if len(speeds) > 1:
            slow = ", ".join(host for host, rail in ends if rail["speed_mbps"] == min(speeds))
            found, cure = _ends(ends, "speed_mbps"), "the slowest end sets the pace: check its cable and port"
            warnings.append(problem(slow, f"speed in {subnet}", found, "one speed on all ends", cure))
    return warnings


def _by_subnet(rails: Mapping[str, list[Rail]]) -> dict[str, list[tuple[str, Rail]]]:
    result: dict[str, list[tuple[str, Rail]]] = {}
    for host, own in rails.items():
        for number, rail in enumerate(own):
            result.setdefault(rail["subnet"] or f"rail {number}", []).append((host, rail))
    return result


def _ends(ends: Iterable[tuple[str, Rail]], key: str) -> str:
    return ", ".join(f"{host} {rail['netdev']} {rail[key]}" for host, rail in ends)  # type: ignore[literal-required]


def _same_addresses(rails: Mapping[str, list[Rail]]) -> list[Problem]:
    owners: dict[str, list[str]] = {}
    for host, own in rails.items():
        for rail in own:
            owners.setdefault(rail["address"], []).append(host)
    return [
        problem(", ".join(names), f"address {address}", f"on {' and '.join(names)}", "one owner", _SAME_CURE, AMBIGUOUS)
        for address, names in owners.items()
        if len(names) > 1
    ]


_SAME_CURE = "give every host an address of its own"


def _counts(rails: Mapping[str, list[Rail]]) -> list[Problem]:
    """Hosts whose rails were named one by one: as many on each, in the same subnets, in the same order."""
    known = {host: [rail["subnet"] for rail in own] for host, own in rails.items() if own}
    if len({tuple(_masked(subnets)) for subnets in known.values()}) < 2:
        return []
    found = "; ".join(f"{host}: {', '.join(_masked(subnets))}" for host, subnets in known.items())
    cure = "name the addresses of all hosts in the same order, one for each rail"
    return [problem(", ".join(known), "rails", found, "the same subnets on every host", cure, AMBIGUOUS)]


def _masked(subnets: list[str]) -> list[str]:
    # Of a tree without addresses the subnet is not known; a link-local one is the same everywhere.
    return [subnet or "?" for subnet in subnets if not (subnet and _roce_ip.is_link_local(subnet))]
