# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""IPv4 addresses of this host, asked of the kernel over netlink.

A process of `ip` would cost as much as the rest of a start, and /proc tells which addresses are local but not on which
interface they are.
"""

from __future__ import annotations

import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._roce_types import Address

_RTM_NEWADDR, _RTM_GETADDR, _NLMSG_ERROR, _NLMSG_DONE = 20, 22, 2, 3
_REQUEST_DUMP = 0x301
_IFA_LOCAL, _IFA_ADDRESS, _IFA_FLAGS = 2, 1, 8
_SECONDARY, _PERMANENT = 0x01, 0x80
_HEADER = struct.Struct("=IHHII")
_IFADDRMSG = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")


def parse(data: bytes) -> tuple[list[tuple[int, Address]], bool]:
    """Addresses with their interface's number out of one netlink reply, and whether it was the last one."""
    found: list[tuple[int, Address]] = []
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _flags, _sequence, _pid = _HEADER.unpack_from(data, offset)
        if kind == _NLMSG_DONE:
            return found, True
        if kind == _NLMSG_ERROR:
            (code,) = struct.unpack_from("=i", data, offset + _HEADER.size)
            raise OSError(-code, "netlink refused to list the addresses")
        if kind == _RTM_NEWADDR:
            found.append(_parse_one(data, offset + _HEADER.size, offset + length))
        offset += max(length + 3 & ~3, _HEADER.size)
    return found, False


def _parse_one(data: bytes, start: int, end: int) -> tuple[int, Address]:
    _family, prefix, flags, _scope, index = _IFADDRMSG.unpack_from(data, start)
    local = peer = b""
    offset = start + _IFADDRMSG.size
    while offset + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        value = data[offset + _ATTRIBUTE.size : offset + length]
        if kind == _IFA_LOCAL:
            local = value
        elif kind == _IFA_ADDRESS:
            peer = value
        elif kind == _IFA_FLAGS:
            (flags,) = struct.unpack("=I", value)
        offset += max(length + 3 & ~3, _ATTRIBUTE.size)
    return index, {
        "address": socket.inet_ntoa(local or peer),
        "prefix": prefix,
        "secondary": bool(flags & _SECONDARY),
        "dynamic": not flags & _PERMANENT,
    }


def live() -> dict[str, list[Address]]:
    """The IPv4 addresses of every interface of this host, as the kernel lists them."""
    names = dict(socket.if_nameindex())
    result: dict[str, list[Address]] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as channel:
        channel.settimeout(5)
        request = _IFADDRMSG.pack(socket.AF_INET, 0, 0, 0, 0)
        channel.send(_HEADER.pack(_HEADER.size + len(request), _RTM_GETADDR, _REQUEST_DUMP, 1, 0) + request)
        done = False
        while not done:
            found, done = parse(channel.recv(1 << 16))
            for index, address in found:
                if index in names:
                    result.setdefault(names[index], []).append(address)
    return result


def captured(text: str) -> dict[str, list[Address]]:
    """The same out of what `ip -j address` printed, for a tree that was captured on another host."""
    import json  # not needed on a live host

    result: dict[str, list[Address]] = {}
    for link in json.loads(text):
        for info in link.get("addr_info", []):
            if info.get("family") == "inet":
                result.setdefault(link["ifname"], []).append(
                    {
                        "address": info["local"],
                        "prefix": int(info["prefixlen"]),
                        "secondary": bool(info.get("secondary", False)),
                        "dynamic": bool(info.get("dynamic", False)),
                    }
                )
    return result
