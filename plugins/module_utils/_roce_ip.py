# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""IPv4 arithmetic and the GIDs that map it.

The standard `ipaddress` costs more to import than the whole resolution takes, and this runs at every start of a unit.
"""

from __future__ import annotations

ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
MAPPED = "0000:0000:0000:0000:0000:ffff:"


def to_int(address: str) -> int:
    """The number of a dotted quad; ValueError for anything else, leading zeros included."""
    parts = address.split(".")
    if len(parts) != 4:
        raise ValueError(f"not an IPv4 address: {address!r}")
    number = 0
    for part in parts:
        if not (part.isascii() and part.isdigit()) or str(int(part)) != part or int(part) > 255:
            raise ValueError(f"not an IPv4 address: {address!r}")
        number = number << 8 | int(part)
    return number


def to_text(number: int) -> str:
    """The dotted quad of a number."""
    return f"{number >> 24 & 255}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def network(address: str, prefix: int) -> str:
    """The subnet that an address with a prefix length lies in, as `a.b.c.d/p`."""
    return f"{to_text(to_int(address) & mask(prefix))}/{prefix}"


def mask(prefix: int) -> int:
    """The netmask of a prefix length as a number."""
    return (0xFFFFFFFF << (32 - prefix)) & 0xFFFFFFFF


def parse_subnet(text: str) -> tuple[int, int]:
    """Network number and prefix length of `a.b.c.d/p`; ValueError where it is no subnet."""
    address, slash, prefix = text.partition("/")
    if not slash or not (prefix.isascii() and prefix.isdigit()) or int(prefix) > 32:
        raise ValueError(f"not an IPv4 subnet: {text!r}")
    number = to_int(address)
    if number & mask(int(prefix)) != number:
        raise ValueError(f"not an IPv4 subnet: {text!r} has host bits set, meant is {network(address, int(prefix))}")
    return number, int(prefix)


def contains(subnet: str, address: str) -> bool:
    """Whether the address lies in the subnet."""
    number, prefix = parse_subnet(subnet)
    return to_int(address) & mask(prefix) == number


def overlap(one: str, other: str) -> bool:
    """Whether two subnets have an address in common."""
    (number, prefix), (second, length) = parse_subnet(one), parse_subnet(other)
    shared = mask(min(prefix, length))
    return number & shared == second & shared


def cover(subnets: list[str]) -> str:
    """The smallest subnet that holds all the given ones."""
    low, prefix = parse_subnet(subnets[0])
    for subnet in subnets[1:]:
        number, other = parse_subnet(subnet)
        prefix = min(prefix, other, 32 - (low ^ number).bit_length())
        low &= mask(prefix)
    return f"{to_text(low & mask(prefix))}/{prefix}"


def is_link_local(address: str) -> bool:
    """169.254.0.0/16: given by the host to itself, another one after the next boot."""
    return address.startswith("169.254.")


def is_usable(address: str) -> bool:
    """Whether a peer can be reached under such an address at all."""
    first = to_int(address) >> 24
    return first not in (0, 127) and first < 224


def mapped_address(gid: str) -> str:
    """The IPv4 address that a GID maps, or an empty string."""
    if not gid.startswith(MAPPED):
        return ""
    digits = gid[len(MAPPED) :].replace(":", "")
    if len(digits) != 8:
        return ""
    try:
        return to_text(int(digits, 16))
    except ValueError:
        return ""


def mapped_gid(address: str) -> str:
    """The GID, as sysfs writes it, that maps an IPv4 address."""
    number = to_int(address)
    return f"{MAPPED}{number >> 16:04x}:{number & 0xFFFF:04x}"
