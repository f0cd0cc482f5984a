# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""From a card and what the nodes are: who is head, who has which rank, and where everything lies.

The result is the one structure that all roles read (`deployment`), so that no two of them can derive an address or
a path in different ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ._fabric_checks import check_hosts
from ._report import Fault, fault

STATE_ROOT = ".local/share/dgx-spark-vllm"
CONFIG_ROOT = ".config/dgx-spark-vllm"
SINGLE_NODE_ADDRESS = "127.0.0.1"


def members(group: Sequence[str], head: str, count: int) -> list[str]:
    """The hosts that take part, the head first, at most `count` of them, otherwise in the inventory's order."""
    rest = [name for name in group if name != head]
    return [head, *rest][:count]


def _group_faults(group: Sequence[str], head: str, card: Mapping[str, Any]) -> list[Fault]:
    """Whether the group can serve the card at all."""
    faults = []
    if head not in group:
        faults.append(
            fault(
                head,
                "deployment_head",
                f"{head!r} is not in the group",
                f"one of {', '.join(group)}",
                "name a host of the group in deployment_head, or leave it out: the first one is the head",
            )
        )
    least = int(card["nodes"]["min"])
    if len(group) < least:
        faults.append(
            fault(
                "",
                f"card {card['name']}",
                f"{len(group)} host(s) in the group: {', '.join(group)}",
                f"at least {least}",
                "add hosts to the inventory's group, or choose a card that fits fewer nodes",
            )
        )
    return faults


def missing_probes(hosts: Sequence[str], probes: Mapping[str, Any]) -> list[Fault]:
    """Hosts of the deployment that this run does not reach: a pair is changed as a whole or not at all."""
    return [
        fault(
            host,
            "this run",
            "the host was not reached, or the run was limited to other hosts",
            f"all of {', '.join(hosts)} in one run, because they are changed as a whole",
            "run without --limit, and mend what keeps the host from being reached",
        )
        for host in hosts
        if host not in probes
    ]


def _user_faults(probes: Mapping[str, Mapping[str, Any]]) -> list[Fault]:
    """The engine runs as the connecting user, which must be an ordinary one."""
    return [
        fault(
            host,
            "connecting user",
            "root",
            "an ordinary user with sudo: the engine runs as this user",
            "set ansible_user to an ordinary user",
        )
        for host, probe in probes.items()
        if probe["node"]["uid"] == 0
    ]


def _paths(node: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, str]:
    """Where things lie on one node."""
    home = PurePosixPath(node["home"])
    user_units = options["scope"] == "user"
    models_root = PurePosixPath(str(options["models_root"]).replace("~", str(home), 1))
    return {
        "root": str(home / STATE_ROOT),
        "config": str(home / CONFIG_ROOT),
        "models_root": str(home / models_root),
        "scope": str(options["scope"]),
        "unit_dir": str(home / ".config/systemd/user") if user_units else "/etc/systemd/system",
    }


def assemble(
    group: Sequence[str],
    probes: Mapping[str, Mapping[str, Any]],
    card: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The deployment of every member, and every fault that was found on the way.

    group: all hosts of the inventory's group, in its order; probes: result of node_info per host; card: result of
    card_info; options: head (name or ""), scope (user or system), models_root, api (host, port), fabric (pins per host,
    subnets, gid_mode, min_speed_mbps).
    Returns {"hosts": {name: deployment}, "errors": [...], "warnings": [...]}; hosts outside the deployment are absent.
    """
    head = str(options.get("head") or group[0])
    count = min(len(group), int(card["nodes"]["max"]))
    hosts = members(group, head, count)
    errors: list[Mapping[str, Any]] = [*_group_faults(group, head, card), *missing_probes(hosts, probes)]
    if errors:
        return {"hosts": {}, "errors": errors, "warnings": []}
    probes = {host: probes[host] for host in hosts}
    errors += _user_faults(probes)
    warnings: list[Mapping[str, Any]] = []
    rails: Mapping[str, Any] = {}
    subnets: list[str] = []
    wanted = options.get("fabric") or {}
    pins = wanted.get("pins") or {}
    if count > 1:
        fabric = check_hosts(
            {host: probes[host]["fabric"] for host in hosts},
            pins=pins,
            subnets=wanted.get("subnets") or None,
            gid_mode=str(wanted.get("gid_mode") or "auto"),
            min_speed_mbps=int(wanted.get("min_speed_mbps") or 0),
        )
        subnets = fabric["subnets"]
        errors += fabric["errors"]
        warnings += fabric["warnings"]
        rails = fabric["rails"]
    addresses = {host: [str(rail["address"]) for rail in rails.get(host, [])] for host in hosts}
    if count == 1:
        addresses = {head: [SINGLE_NODE_ADDRESS]}
    result = {}
    for rank, host in enumerate(hosts):
        node = probes[host]["node"]
        result[host] = {
            "head": head,
            "hosts": hosts,
            "rank": rank,
            "is_head": rank == 0,
            "user": node["user"],
            "uid": node["uid"],
            "gid": node["gid"],
            "home": node["home"],
            **_paths(node, options),
            "address": next(iter(addresses[host]), ""),
            "head_address": next(iter(addresses[head]), ""),
            "addresses": addresses,
            "rails": rails.get(host, []),
            "fabric": {
                "subnets": subnets,
                "gid_mode": str(wanted.get("gid_mode") or "auto"),
                "pins": pins.get(host) or {},
            },
            "api": dict(options["api"]),
            "card": card,
            "node": node,
            "python": node["python"]["path"],
            "release": node["release"],
        }
    return {"hosts": result, "errors": errors, "warnings": warnings}
