# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Reads RDMA ports, GID tables, interfaces and addresses into a plain structure; only this file touches sysfs."""

# Importing pathlib would cost more than reading 1,020 slots does.
# ruff: noqa: PTH110, PTH111, PTH123, PTH208

from __future__ import annotations

import os

from . import _roce_addr, _roce_ip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ._roce_types import Address, Facts, Netdev, Port, Row

    Reader = Callable[[str], str]

# What a tree captured on another host holds beside its sys/: the output of `ip -j address`.
CAPTURED_ADDRESSES = "ip-address.json"
_NCCL_CONF = ("/etc/nccl.conf", "~/.nccl.conf")


def read_file(path: str) -> str:
    """A small file's text. Three system calls: at 255 slots a device, `open()` would be most of the time."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 4096).decode("utf-8", "replace").strip()
    finally:
        os.close(handle)


def read(root: str = "/", reader: Reader = read_file) -> Facts:
    """The fabric's facts of this host, or of a tree that was captured under `root`.

    `reader` reads one file; it exists so that a test can answer as a kernel does (EINVAL for an empty slot).
    """
    base = "" if root == "/" else root.rstrip("/")
    rdma = f"{base}/sys/class/infiniband"
    ports = [
        _read_port(f"{rdma}/{device}", device, port, reader)
        for device in _names(rdma)
        for port in sorted(int(name) for name in _names(f"{rdma}/{device}/ports") if _is_number(name))
    ]
    source, addresses = _addresses(base, ports)
    wanted = set(addresses) | {name for port in ports for name in _port_netdevs(port)}
    netdevs = {name: _read_netdev(base, name, addresses.get(name, []), reader) for name in sorted(wanted)}
    return {
        "root": root,
        "hostname": os.uname().nodename,
        "ports": ports,
        "netdevs": netdevs,
        "address_source": source,
        "nccl_conf": _read_nccl_conf(base, reader),
    }


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _maybe(path: str, reader: Reader) -> str:
    """A file's text; empty where it is missing or, as for an empty slot or a link that is down, refuses to be read."""
    try:
        return reader(path)
    except OSError:
        return ""


def _number(text: str) -> int | None:
    digits = text.split(" ", 1)[0].split(".", 1)[0]
    return int(digits) if _is_number(digits) else None


def _read_port(path: str, device: str, port: int, reader: Reader) -> Port:
    base = f"{path}/ports/{port}"
    rate = _number(_maybe(f"{base}/rate", reader))
    return {
        "device": device,
        "port": port,
        "state": _maybe(f"{base}/state", reader).partition(": ")[2],
        "phys_state": _maybe(f"{base}/phys_state", reader).partition(": ")[2],
        "link_layer": _maybe(f"{base}/link_layer", reader),
        "rate_mbps": rate * 1000 if rate is not None else None,
        "netdevs": _names(f"{path}/device/net"),
        "pcie_width": _number(_maybe(f"{path}/device/current_link_width", reader)),
        "pcie_max_width": _number(_maybe(f"{path}/device/max_link_width", reader)),
        "rows": _read_rows(base, reader),
    }


def _read_rows(base: str, reader: Reader) -> list[Row]:
    """The slots that hold something, by number. A slot may answer zero, EINVAL or ENOENT when it is empty."""
    rows: list[Row] = []
    for index in sorted(int(name) for name in _names(f"{base}/gids") if _is_number(name)):
        try:
            gid = reader(f"{base}/gids/{index}").lower()
        except OSError:
            continue
        if gid in ("", _roce_ip.ZERO):
            continue
        rows.append(
            {
                "index": index,
                "type": _maybe(f"{base}/gid_attrs/types/{index}", reader),
                "gid": gid,
                "address": _roce_ip.mapped_address(gid),
                "netdev": _maybe(f"{base}/gid_attrs/ndevs/{index}", reader),
            }
        )
    return rows


def _port_netdevs(port: Port) -> set[str]:
    return set(port["netdevs"]) | {row["netdev"] for row in port["rows"] if row["netdev"]}


def _addresses(base: str, ports: list[Port]) -> tuple[str, dict[str, list[Address]]]:
    if not base:
        return "netlink", _roce_addr.live()
    capture = f"{base}/{CAPTURED_ADDRESSES}"
    if os.path.exists(capture):
        with open(capture, encoding="utf-8") as stream:
            return "capture", _roce_addr.captured(stream.read())
    # A tree of sysfs alone: the kernel makes a row for each address, so the rows tell which addresses there are.
    result: dict[str, list[Address]] = {}
    for port in ports:
        for row in port["rows"]:
            netdev = row["netdev"] or (port["netdevs"][0] if len(port["netdevs"]) == 1 else "")
            known = result.setdefault(netdev, []) if netdev and row["address"] else []
            if row["address"] and all(row["address"] != entry["address"] for entry in known):
                known.append({"address": row["address"], "prefix": None, "secondary": False, "dynamic": False})
    return "gid", result


def _read_netdev(base: str, name: str, addresses: list[Address], reader: Reader) -> Netdev:
    path = f"{base}/sys/class/net/{name}"
    entries = _names(path)
    carrier = _maybe(f"{path}/carrier", reader)
    operstate = _maybe(f"{path}/operstate", reader)
    return {
        "kind": _kind(name, entries, _maybe(f"{path}/uevent", reader)),
        "lower": [entry[len("lower_") :] for entry in entries if entry.startswith("lower_")],
        "mtu": _number(_maybe(f"{path}/mtu", reader)),
        # An interface that is administratively down refuses to tell its carrier.
        "carrier": carrier == "1" if carrier else (False if operstate == "down" else None),
        "operstate": operstate,
        "speed_mbps": _number(_maybe(f"{path}/speed", reader)),
        "addresses": addresses,
    }


def _kind(name: str, entries: list[str], uevent: str) -> str:
    for line in uevent.splitlines():
        if line.startswith("DEVTYPE="):
            return line[len("DEVTYPE=") :]
    if "bridge" in entries:
        return "bridge"
    if "bonding" in entries:
        return "bond"
    if "device" in entries:
        return "physical"
    if not entries and "." in name:
        return "vlan"
    return "virtual"


def _read_nccl_conf(base: str, reader: Reader) -> dict[str, str]:
    """NCCL's own configuration files, which speak where the environment is silent."""
    found: dict[str, str] = {}
    for path in _NCCL_CONF:
        if base and path.startswith("~"):
            continue
        for line in _maybe(base + os.path.expanduser(path), reader).splitlines():
            name, equals, value = line.partition("=")
            if equals and name.strip().startswith("NCCL_"):
                found[name.strip()] = value.strip()
    return found
