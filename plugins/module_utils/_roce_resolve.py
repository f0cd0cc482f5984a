# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""From a host's facts to its rails, the GID row of each, and the environment. Pure: no file is read here."""

from __future__ import annotations

from . import _roce_env, _roce_ip, _roce_pins, _roce_targets, _roce_warn
from ._roce_problem import (
    AMBIGUOUS,
    CONFIG,
    NO_COMMON_INDEX,
    NO_DEVICE,
    NO_ROW,
    PIN,
    PORT_DOWN,
    problem,
)
from ._roce_table import gid_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._roce_types import Address, Facts, Pins, Port, Problem, Rail, Resolution

GID_MODES = ("auto", "pin", "none")


def resolve(
    facts: Facts,
    addresses: list[str] | None = None,
    subnets: list[str] | None = None,
    gid_mode: str = "auto",
    pins: Mapping[str, object] | None = None,
) -> Resolution:
    """The rails and the environment of this host, or the errors that keep it from having them.

    The rails are those of `addresses`, else of `subnets`, else of every RDMA port with a link. `gid_mode` auto sets
    one index where all rails share it and family, version and range where they do not; pin demands the one index;
    none never sets it.
    """
    host = facts["hostname"]
    pinned, errors = _roce_pins.normalise(pins, host)
    errors += _input_errors(host, addresses, subnets, gid_mode)
    if errors:
        return _failed(errors)
    if not facts["ports"]:
        return _failed([_no_device(host)])
    errors = _missing_pins(facts, pinned)
    if errors:
        return _failed(errors)
    addresses = pinned["addresses"] or addresses
    if addresses:
        targets, errors = _roce_targets.from_addresses(facts, addresses, pinned)
    elif subnets:
        targets, errors = _roce_targets.from_subnets(facts, subnets, pinned)
    else:
        targets, errors = _roce_targets.from_ports(facts, pinned)
    rails: list[Rail] = []
    for netdev, entry in targets:
        rail, error = _rail(facts, netdev, entry, pinned)
        if rail:
            rails.append(rail)
        if error:
            errors.append(error)
    errors += _collisions(host, rails)
    if not errors:
        errors = _unused_pins(facts, pinned, rails)
    environment: dict[str, str] = {}
    if not errors:
        environment, errors = _environment(host, rails, gid_mode, pinned)
    return {
        "rails": rails,
        "environment": {} if errors else environment,
        "warnings": _roce_warn.of_host(facts, rails, environment),
        "errors": errors,
    }


def _failed(errors: list[Problem]) -> Resolution:
    return {"rails": [], "environment": {}, "warnings": [], "errors": errors}


def _input_errors(host: str, addresses: list[str] | None, subnets: list[str] | None, gid_mode: str) -> list[Problem]:
    errors = []
    cure = "correct the inventory or the fabric's configuration"
    if gid_mode not in GID_MODES:
        errors.append(problem(host, "gid_mode", repr(gid_mode), f"one of {', '.join(GID_MODES)}", cure, CONFIG))
    for address in addresses or []:
        if not _roce_pins.is_address(address):
            errors.append(problem(host, "addresses", repr(address), "a host's IPv4 address", cure, CONFIG))
    for subnet in subnets or []:
        try:
            _roce_ip.parse_subnet(subnet)
        except ValueError as error:
            errors.append(problem(host, "subnets", str(error), "a subnet such as 192.168.100.0/24", cure, CONFIG))
    return errors


def _no_device(host: str) -> Problem:
    return problem(
        host,
        "RDMA devices",
        "none: /sys/class/infiniband is empty or missing",
        "at least one",
        "check that the network card is seen (lspci), its driver loaded (mlx5_ib) and a cable plugged; there is no "
        "fall-back to TCP",
        NO_DEVICE,
    )


def _missing_pins(facts: Facts, pins: Pins) -> list[Problem]:
    """Pins that name what this host does not have."""
    host, errors = facts["hostname"], []
    devices = sorted({port["device"] for port in facts["ports"]})
    cure = "correct the host's pin: names differ from host to host"
    for name in pins["devices"]:
        if name not in devices:
            errors.append(problem(host, f"pin device {name}", ", ".join(devices), "a device of this host", cure, PIN))
    for name in pins["interfaces"]:
        if name not in facts["netdevs"]:
            found = ", ".join(facts["netdevs"]) or "none"
            errors.append(problem(host, f"pin interface {name}", found, "an interface of this host", cure, PIN))
    return errors


def _unused_pins(facts: Facts, pins: Pins, rails: list[Rail]) -> list[Problem]:
    """Pins that no rail came to use: the rails found are others than the inventory says."""
    used = {rail["device"] for rail in rails} | {rail["netdev"] for rail in rails}
    found = ", ".join(f"{rail['netdev']} {rail['device']} {rail['address']}" for rail in rails)
    return [
        problem(facts["hostname"], f"pin {name}", found, f"a rail over {name}", "correct the host's pins", PIN)
        for name in pins["devices"] + pins["interfaces"]
        if name not in used
    ]


def _rail(facts: Facts, netdev: str, entry: Address, pins: Pins) -> tuple[Rail | None, Problem | None]:
    """the rail of an address, and what keeps it from working"""
    host, address = facts["hostname"], entry["address"]
    subject = f"rail {address} on {netdev}"
    ports = _roce_targets.ports_of(facts, netdev)
    if not ports:
        return None, _roce_targets.unserved(facts, netdev, entry)
    info = facts["netdevs"][netdev]
    if info["kind"] == "bridge":
        cure = "take the port out of the bridge and give the address to the port itself"
        return None, problem(host, subject, f"{netdev} is a bridge", "a port", cure, AMBIGUOUS)
    if pins["devices"]:
        ports = [port for port in ports if port["device"] in pins["devices"]]
    matches = [(port, indices) for port in ports if (indices := _indices(port, netdev, address))]
    # A port with a link comes first: with a bond both ports may carry the row.
    matches.sort(key=lambda match: match[0]["state"] != "ACTIVE")
    if not matches:
        return None, _no_row(facts, subject, address, ports)
    port, indices = matches[0]
    rail: Rail = {
        "address": address,
        "prefix": entry["prefix"],
        "subnet": "" if entry["prefix"] is None else _roce_ip.network(address, entry["prefix"]),
        "netdev": netdev,
        "device": port["device"],
        "port": port["port"],
        "state": port["state"],
        "carrier": info["carrier"],
        "mtu": info["mtu"],
        "speed_mbps": _speed(port, info["kind"], info["speed_mbps"]),
        "pcie_width": port["pcie_width"],
        "pcie_max_width": port["pcie_max_width"],
        "gid_index": pins["index"] if pins["index"] in indices else indices[0],
        "indices": indices,
        "rows": port["rows"],
    }
    return rail, _link_error(host, subject, rail, port)


def _indices(port: Port, netdev: str, address: str) -> list[int]:
    """the slots, lowest first, that map the address by RoCE v2 for that interface"""
    return sorted(
        row["index"]
        for row in port["rows"]
        if row["address"] == address
        and row["type"] == "RoCE v2"
        and (row["netdev"] == netdev if row["netdev"] else netdev in port["netdevs"])
    )


def _speed(port: Port, kind: str, netdev_speed: int | None) -> int | None:
    """the RDMA port's rate; an interface's own word counts beside it only where it is hardware"""
    if port["rate_mbps"] is None:
        return netdev_speed
    if kind == "physical" and netdev_speed:
        return min(port["rate_mbps"], netdev_speed)
    return port["rate_mbps"]


def _link_error(host: str, subject: str, rail: Rail, port: Port) -> Problem | None:
    where = f"{rail['device']} port {rail['port']}"
    if port["link_layer"] == "InfiniBand":
        cure = "switch the port to Ethernet (mlxconfig LINK_TYPE); only RoCE is handled"
        return problem(host, subject, f"{where} is an InfiniBand link", "Ethernet", cure, AMBIGUOUS)
    if rail["carrier"] is False:
        found = f"{rail['netdev']} has no carrier"
        return problem(host, subject, found, "a link", _roce_targets.CABLE_CURE, PORT_DOWN)
    if rail["state"] != "ACTIVE":
        found = f"{where} is {rail['state'] or 'in no known state'}"
        return problem(host, subject, found, "ACTIVE", _roce_targets.CABLE_CURE, PORT_DOWN)
    return None


def _no_row(facts: Facts, subject: str, address: str, ports: list[Port]) -> Problem:
    cure = "wait for the kernel's row or set the interface down and up; a row of type v1 or a link-local one is no use"
    if not any(row["address"] for port in ports for row in port["rows"]):
        cure = f"the table has no IPv4 row: {_roce_targets.ADDRESS_CURE}"
    expected = f"a RoCE v2 row of {address}"
    return problem(facts["hostname"], subject, gid_table(ports), expected, cure, NO_ROW)


def _collisions(host: str, rails: list[Rail]) -> list[Problem]:
    """Two rails in one subnet, or on one port: traffic would leave by either."""
    errors = []
    for number, rail in enumerate(rails):
        for other in rails[:number]:
            found = f"{other['netdev']} {other['address']} and {rail['netdev']} {rail['address']}"
            if rail["subnet"] and other["subnet"] and _roce_ip.overlap(rail["subnet"], other["subnet"]):
                subject = f"rails in {_roce_ip.cover([rail['subnet'], other['subnet']])}"
                cure = _roce_targets.SUBNET_CURE
                errors.append(problem(host, subject, found, "one interface in each subnet", cure, AMBIGUOUS))
            elif (rail["device"], rail["port"]) == (other["device"], other["port"]):
                subject = f"rails on {rail['device']} port {rail['port']}"
                cure = "name one address for each port"
                errors.append(problem(host, subject, found, "one rail on each port", cure, AMBIGUOUS))
    return errors


def _environment(host: str, rails: list[Rail], gid_mode: str, pins: Pins) -> tuple[dict[str, str], list[Problem]]:
    names = [f"{rail['device']}:{rail['port']}" for rail in rails]
    if len(rails) > _roce_env.HCA_ENTRIES or any(len(name.encode()) > _roce_env.HCA_BYTES for name in names):
        expected = f"at most {_roce_env.HCA_ENTRIES} names of at most {_roce_env.HCA_BYTES} bytes"
        return {}, [problem(host, "NCCL_IB_HCA", ",".join(names), expected, "pin fewer rails", AMBIGUOUS)]
    if pins["index"] is not None:
        cure = f"correct the host's index pin, or leave it out: {rails[0]['gid_index']} would be taken now"
        expected = "at that index a RoCE v2 row of each rail's address"
        if any(pins["index"] not in rail["indices"] for rail in rails):
            return {}, [problem(host, f"pin index {pins['index']}", _table(rails), expected, cure, PIN)]
        return _roce_env.environment(rails, pins["index"], None), []
    shared = {rail["gid_index"] for rail in rails}
    if gid_mode != "none" and len(shared) == 1:
        return _roce_env.environment(rails, shared.pop(), None), []
    if gid_mode == "pin":
        cure = (
            "use gid_mode: auto, which leads NCCL by address range, or make the tables equal (interfaces down and up)"
        )
        return {}, [problem(host, "common GID index", _table(rails), "one index for all rails", cure, NO_COMMON_INDEX)]
    address_range = _roce_env.leading_range(rails)
    if address_range is None:
        cure = "remove further addresses from the fabric's interfaces, or pin an index that all rails share"
        expected = "a range under which NCCL takes the marked rows"
        return {}, [problem(host, "NCCL_IB_ADDR_RANGE", _table(rails), expected, cure, NO_COMMON_INDEX)]
    return _roce_env.environment(rails, None, address_range), []


def _table(rails: list[Rail]) -> str:
    return gid_table([_as_port(rail) for rail in rails], rails)


def _as_port(rail: Rail) -> Port:
    return {
        "device": rail["device"],
        "port": rail["port"],
        "state": rail["state"],
        "phys_state": "",
        "link_layer": "",
        "rate_mbps": None,
        "netdevs": [rail["netdev"]],
        "pcie_width": None,
        "pcie_max_width": None,
        "rows": rail["rows"],
    }
