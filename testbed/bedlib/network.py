# SPDX-License-Identifier: GPL-3.0-or-later
"""Namespaces and links.

Every node has a namespace of its own, made anew at each boot as a machine's network state is. A further namespace, the
switch, holds two bridges: one for management (with one link to this machine) and one that is the fabric cable. Cables
end in the switch, so a cut takes the carrier from a node and leaves its interface up, as pulling a plug does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .fixtures import FUNCTIONS, mac
from .options import MANAGEMENT, MTU, Bed
from .system import BedError, run

MANAGEMENT_MAC = 0xE0
NETNS = Path("/run/netns")


def ip(lines: Sequence[str], namespace: str = "") -> None:
    """Several `ip` commands in one process."""
    where = ["-n", namespace] if namespace else []
    run(["ip", *where, "-batch", "-"], stdin="\n".join(lines) + "\n", timeout=20)


def namespace_exists(name: str) -> bool:
    """A name without a namespace behind it is what a machine leaves that was switched off and keeps /run on disk."""
    path = NETNS / name
    return path.exists() and path.stat().st_dev != NETNS.stat().st_dev


def add_namespace(name: str) -> None:
    drop_namespace(name)
    run(["ip", "netns", "add", name])


def drop_namespace(name: str) -> None:
    if (NETNS / name).exists():
        run(["ip", "netns", "del", name])


def host_link_exists(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


def check_free(bed: Bed) -> None:
    """Refuse a management network that this machine already uses: its traffic would go astray."""
    for route in json.loads(run(["ip", "-j", "route", "show", "root", f"{bed.net}.0/24"]) or "[]"):
        if route.get("dev") != bed.host_link:
            raise BedError(
                f"network {bed.net}.0/24 is in use here (route {route.get('dst')} on {route.get('dev')}); "
                "choose another with --net or BED_NET"
            )


def switch_lines(bed: Bed) -> list[str]:
    return [
        "link set lo up",
        f"link add mgmt mtu {MTU} type bridge",
        "link set mgmt up",
        f"link add fabric mtu {MTU} type bridge",
        "link set fabric up",
    ]


def make_switch(bed: Bed) -> None:
    if not namespace_exists(bed.switch):
        add_namespace(bed.switch)
        ip(switch_lines(bed), bed.switch)
    if not host_link_exists(bed.host_link):
        ip(
            [
                f"link add {bed.host_link} type veth peer name host netns {bed.switch}",
                f"addr add {bed.net}.1/24 dev {bed.host_link}",
                f"link set {bed.host_link} up",
            ]
        )
        ip(["link set host master mgmt up"], bed.switch)


def far_ends(bed: Bed, number: int) -> list[str]:
    """Switch side of the functions that the cable serves."""
    return [f"f{index}n{number}" for index, function in enumerate(FUNCTIONS) if function.port == 1]


def node_lines(bed: Bed, number: int) -> list[str]:
    """`ip` batch for a node's namespace: management, and the four functions of the two QSFP ports."""
    lines = [
        "link set lo up",
        f"link add {MANAGEMENT} address {mac(number, MANAGEMENT_MAC)} type veth peer name m{number} netns {bed.switch}",
        f"addr add {bed.address(number)}/24 dev {MANAGEMENT}",
        f"link set {MANAGEMENT} up",
    ]
    for index, function in enumerate(FUNCTIONS):
        name, far = function.netdev, f"f{index}n{number}"
        near = f"link add {name} address {mac(number, index)} mtu {MTU}"
        lines.append(f"{near} type veth peer name {far} mtu {MTU} netns {bed.switch}")
        if function.port == 1 and function.twin < bed.rails:
            lines.append(f"addr add {bed.fabric_address(number, function.twin)}/24 dev {name}")
            lines.append(f"link set {name} up")
    return lines


def make_node(bed: Bed, number: int) -> None:
    """A fresh network for a boot: no socket, address or firewall rule of the last one survives."""
    drop_node(bed, number)
    add_namespace(bed.namespace(number))
    ip(node_lines(bed, number), bed.namespace(number))
    ip([f"link set m{number} master mgmt up"], bed.switch)
    ip([f"link set {far} master fabric" for far in far_ends(bed, number)], bed.switch)


def drop_node(bed: Bed, number: int) -> None:
    """Take a node's network away: ends first, because the kernel clears a deleted namespace only some time later."""
    if namespace_exists(bed.switch):
        here = set(links(bed.switch))
        ends = [f"m{number}", *(f"f{index}n{number}" for index in range(len(FUNCTIONS)))]
        present = [f"link del {end}" for end in ends if end in here]
        if present:
            ip(present, bed.switch)
    drop_namespace(bed.namespace(number))


def links(namespace: str) -> list[str]:
    return [str(link["ifname"]) for link in json.loads(run(["ip", "-n", namespace, "-j", "link"]))]


def drop_all(bed: Bed) -> None:
    """Remove every namespace and link of this prefix."""
    for number in range(1, 9):
        drop_node(bed, number)
    if host_link_exists(bed.host_link):
        ip([f"link del {bed.host_link}"])
    drop_namespace(bed.switch)


def present(bed: Bed) -> bool:
    return namespace_exists(bed.switch) and host_link_exists(bed.host_link)
