# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The netplan file that would give bare fabric ports their addresses. Pure: plans, and refuses what is not ours.

An interface that anything else configures is never touched: the plan is refused with the place that configures it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import _roce_ip
from ._roce_problem import AMBIGUOUS, CONFIG, problem
from ._roce_types import Facts, Port, Problem

TARGET = "/etc/netplan/60-dgx-spark-vllm-fabric.yaml"
# Places in which a system keeps network configuration: the files that matter there, and how each names an interface,
# by its name or by its hardware address.
PLACES = {
    "/etc/netplan": (".yaml", r"^\s+['\"]?{name}['\"]?:|^\s*(?:name|match):.*\b{name}\b", r"\bmacaddress:.*{mac}"),
    "/etc/NetworkManager/system-connections": ("", r"^interface-name={name}$", r"^mac-address={mac}"),
    "/etc/systemd/network": (".network", r"^Name=.*\b{name}\b", r"^(?:Permanent)?MACAddress=.*{mac}"),
    "/etc/network": ("", r"^iface {name}\b", ""),
}
_HEAD = """\
# Addresses of the RoCE fabric, written by dgx_spark.vllm (playbooks/fabric.yml).
# Taken out by: ansible-playbook playbooks/fabric.yml -e fabric_netplan_state=absent
network:
  version: 2
  ethernets:
"""
_ENTRY = """\
    {name}:
      dhcp4: false
      dhcp6: false
      optional: true
      mtu: {mtu}
      addresses: [{address}]
"""
_OURS = re.compile(r"^    (\S+):\n(?:      .*\n)*?      addresses: \[(\S+)\]$", re.MULTILINE)


def render(interfaces: Mapping[str, str], mtu: int) -> str:
    """The file's text: interface to `address/prefix`. Empty where there is none."""
    entries = "".join(_ENTRY.format(name=name, mtu=mtu, address=interfaces[name]) for name in sorted(interfaces))
    return _HEAD + entries if entries else ""


def ours(text: str) -> dict[str, str]:
    """The interfaces of a file that this code wrote."""
    return dict(_OURS.findall(text))


def plan(
    hosts: Mapping[str, Mapping[str, Any]],
    subnets: Sequence[str],
    mtu: int,
    named: Mapping[str, Mapping[str, str]],
) -> tuple[dict[str, str], list[Problem]]:
    """Each host's file, and every reason not to write one.

    hosts: name to {facts, configs (path to text), macs (interface to hardware address)}, in the inventory's order;
    named: host to interface to `address/prefix`, which replaces what would be found for that host.
    """
    errors = _bad_names(hosts, named)
    kept = {name: ours(host["configs"].get(TARGET, "")) for name, host in hosts.items()}
    if errors:
        return {}, errors
    found, errors = _assign(hosts, subnets, kept, named)
    for name, interfaces in found.items():
        errors += _elsewhere(name, hosts[name]["facts"], interfaces)
        new = {item: hosts[name]["macs"].get(item, "") for item in interfaces if item not in kept[name]}
        errors += _foreign(name, hosts[name]["configs"], new)
    return {name: render(interfaces, mtu) for name, interfaces in found.items()}, errors


def _assign(
    hosts: Mapping[str, Mapping[str, Any]],
    subnets: Sequence[str],
    kept: Mapping[str, Mapping[str, str]],
    named: Mapping[str, Mapping[str, str]],
) -> tuple[dict[str, dict[str, str]], list[Problem]]:
    errors = []
    held = {name: _static(host["facts"]) for name, host in hosts.items()}
    for name in hosts:
        held[name] |= {**kept[name], **named.get(name, {})}
    bare = {name: [] if name in named else _bare(host["facts"], held[name]) for name, host in hosts.items()}
    # What some host has already comes first, so that a forgotten end joins its rail.
    known = sorted({_subnet(value) for own in held.values() for value in own.values()}, key=_roce_ip.parse_subnet)
    rails = known + [subnet for subnet in subnets if not any(_roce_ip.overlap(subnet, other) for other in known)]
    rails = rails[: max((len(held[name]) + len(bare[name]) for name in hosts), default=0)]
    taken = {value.partition("/")[0] for own in held.values() for value in own.values()}
    result: dict[str, dict[str, str]] = {}
    for number, name in enumerate(hosts, start=1):
        result[name] = dict(named.get(name, kept[name]))
        lacking = [subnet for subnet in rails if subnet not in {_subnet(value) for value in held[name].values()}]
        if len(bare[name]) > 2:
            cure = "name them: fabric_netplan_addresses: {HOST: {INTERFACE: ADDRESS/PREFIX}}"
            text = f"{', '.join(bare[name])} are bare: which cable goes where cannot be seen"
            errors.append(problem(name, "interfaces", text, "at most two, of one cable", cure, AMBIGUOUS))
        elif len(bare[name]) > len(lacking):
            text = f"{len(bare[name])} bare ports ({', '.join(bare[name])}), but {len(lacking)} free subnets"
            cure = "add subnets to fabric_netplan_subnets"
            errors.append(problem(name, "subnets", text, "a subnet for each port", cure, CONFIG))
        else:
            for netdev, subnet in zip(bare[name], lacking, strict=False):
                address = _free_address(subnet, number, taken)
                taken.add(address)
                result[name][netdev] = f"{address}/{subnet.partition('/')[2]}"
    return result, errors


def _subnet(value: str) -> str:
    address, _slash, prefix = value.partition("/")
    return _roce_ip.network(address, int(prefix))


def _netdevs(facts: Facts, port: Port) -> list[str]:
    """The interfaces of a port. Soft-RoCE has no PCIe function that carries them, but its rows name them."""
    named = {row["netdev"] for row in port["rows"]} & set(facts["netdevs"])
    return port["netdevs"] or sorted(name for name in named if facts["netdevs"][name]["kind"] != "vlan")


def _static(facts: Facts) -> dict[str, str]:
    """Interfaces of RDMA ports with a static address."""
    names = {name for port in facts["ports"] for name in _netdevs(facts, port)}
    return {
        name: f"{entry['address']}/{entry['prefix']}"
        for name in sorted(names & set(facts["netdevs"]))
        for entry in facts["netdevs"][name]["addresses"][:1]
        if entry["prefix"] is not None and not _roce_ip.is_link_local(entry["address"])
    }


def _bare(facts: Facts, held: Mapping[str, str]) -> list[str]:
    """Interfaces of RDMA ports with a link but without a static address, the first PCIe domain first."""
    active = [port for port in facts["ports"] if port["state"] == "ACTIVE"]
    names = {name for port in active for name in _netdevs(facts, port) if name not in held}

    def order(name: str) -> tuple[int, str]:
        domain = re.match(r"enP(\d+)p", name)
        return int(domain[1]) if domain else 0, name

    return sorted(names, key=order)


def _free_address(subnet: str, number: int, taken: set[str]) -> str:
    """The host's number in the subnet, or the next one that nobody has."""
    base, prefix = _roce_ip.parse_subnet(subnet)
    size = 1 << (32 - prefix)
    for step in range(size):
        offset = (number + step) % size
        address = _roce_ip.to_text(base + offset)
        if 0 < offset < size - 1 and address not in taken:
            return address
    return _roce_ip.to_text(base + number)


def _bad_names(hosts: Mapping[str, Any], named: Mapping[str, Mapping[str, str]]) -> list[Problem]:
    errors = []
    for host, interfaces in named.items():
        cure = "correct fabric_netplan_addresses"
        if host not in hosts:
            errors.append(problem(host, "fabric_netplan_addresses", host, ", ".join(hosts), cure, CONFIG))
        for name, value in interfaces.items():
            subject = f"fabric_netplan_addresses {name}"
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,15}", name):
                errors.append(problem(host, subject, repr(name), "the name of an interface", cure, CONFIG))
            try:
                address, _slash, prefix = value.partition("/")
                usable = _roce_ip.is_usable(address) and 8 <= int(prefix) <= 31
            except (ValueError, AttributeError):
                usable = False
            if not usable:
                errors.append(problem(host, subject, repr(value), "such as 192.168.100.1/24", cure, CONFIG))
    return errors


def _elsewhere(host: str, facts: Facts, interfaces: Mapping[str, str]) -> list[Problem]:
    """New addresses in a network that the host has on another interface: the way to it would be lost."""
    errors = []
    for name, value in interfaces.items():
        for other, info in facts["netdevs"].items():
            for entry in info["addresses"]:
                theirs = _roce_ip.network(entry["address"], entry["prefix"] if entry["prefix"] is not None else 32)
                if other != name and _roce_ip.overlap(_subnet(value), theirs):
                    found, cure = f"{other} has {entry['address']} there", "choose a subnet that nothing else uses"
                    errors.append(problem(host, f"{value} for {name}", found, "a free subnet", cure, AMBIGUOUS))
    return errors


def _foreign(host: str, configs: Mapping[str, str], interfaces: Mapping[str, str]) -> list[Problem]:
    """Interfaces (with their hardware addresses) that something else configures already."""
    errors = []
    for path, text in sorted(configs.items()):
        folder = next((place for place in PLACES if path.startswith(f"{place}/")), "")
        if path == TARGET or not folder:
            continue
        ending, by_name, by_mac = PLACES[folder]
        for name, mac in interfaces.items():
            patterns = [by_name.format(name=re.escape(name)), by_mac.format(mac=re.escape(mac)) if mac else ""]
            pattern = "|".join(filter(None, patterns))
            if path.endswith(ending) and re.search(pattern, text, re.MULTILINE | re.IGNORECASE):
                cure = f"give the interface its address there, or take it out of {path} first"
                found = f"{path} configures it already"
                errors.append(problem(host, f"interface {name}", found, "configured nowhere", cure, AMBIGUOUS))
    return errors
