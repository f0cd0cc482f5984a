"""Namespaces, cables and their faults.

Every node has a namespace of its own, made anew at each boot as a machine's network state is. A further namespace, the
switch, holds two bridges: one for management (with one link to this machine) and one that is the fabric cable. Cables
end in the switch, so a cut takes the carrier from a node and leaves its interface up, as pulling a plug does.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .fixtures import FUNCTIONS, mac
from .options import MANAGEMENT, MTU, Bed
from .system import BedError, run, wait_for

MANAGEMENT_MAC = 0xE0
NETNS = Path("/run/netns")


def ip(lines: Sequence[str], namespace: str = "") -> None:
    """Several `ip` commands in one process."""
    where = ["-n", namespace] if namespace else []
    run(["ip", *where, "-batch", "-"], stdin="\n".join(lines) + "\n", timeout=20)


def namespace_exists(name: str) -> bool:
    return (NETNS / name).exists()


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
        run(["ip", "netns", "add", bed.switch])
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
    run(["ip", "netns", "add", bed.namespace(number)])
    ip(node_lines(bed, number), bed.namespace(number))
    ip([f"link set m{number} master mgmt up"], bed.switch)
    ip([f"link set {far} master fabric" for far in far_ends(bed, number)], bed.switch)
    plug(bed)


def drop_node(bed: Bed, number: int) -> None:
    """Take a node's network away: ends first, because the kernel clears a deleted namespace only some time later."""
    if namespace_exists(bed.switch):
        here = set(links(bed.switch))
        ends = [f"m{number}", *(f"f{index}n{number}" for index in range(len(FUNCTIONS)))]
        present = [f"link del {end}" for end in ends if end in here]
        if present:
            ip(present, bed.switch)
    if namespace_exists(bed.namespace(number)):
        run(["ip", "netns", "del", bed.namespace(number)])


def links(namespace: str) -> list[str]:
    return [str(link["ifname"]) for link in json.loads(run(["ip", "-n", namespace, "-j", "link"]))]


def plan(present: Sequence[int], cuts: Sequence[int], nodes: int) -> dict[int, bool]:
    """Which nodes have a carrier. Two nodes share one cable and lose it together; more of them hang on a switch."""
    alive = {number: number not in cuts for number in present}
    if nodes == 2:
        whole = len(alive) == 2 and all(alive.values())
        return dict.fromkeys(alive, whole)
    return alive


@contextmanager
def cable_lock(bed: Bed) -> Iterator[None]:
    """Nodes boot side by side and each sets the ports of all."""
    with bed.path("nodes", "cable.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def cut_mode(bed: Bed, number: int) -> str:
    """`carrier`, `silent` or nothing: what `bed cut` wrote for a node, kept over reboots as a pulled cable is."""
    path = bed.node_path(number, "cut")
    return path.read_text().strip() if path.exists() else ""


def plug(bed: Bed) -> None:
    """Bring the cable's ports to what power and cuts say."""
    with cable_lock(bed):
        here = set(links(bed.switch))
        present = [number for number in bed.numbers() if f"f0n{number}" in here]
        modes = {number: cut_mode(bed, number) for number in present}
        carrier = plan(present, [number for number, mode in modes.items() if mode == "carrier"], bed.nodes)
        lines = []
        for number, up in carrier.items():
            lines += [f"link set {far} {'up' if up else 'down'}" for far in far_ends(bed, number)]
        if lines:
            ip(lines, bed.switch)
        for number, up in carrier.items():
            if up:
                silence(bed, far_ends(bed, number)[: bed.rails], modes[number] == "silent")


def silence(bed: Bed, ends: Sequence[str], silent: bool) -> None:
    """A disabled bridge port keeps its carrier and passes nothing: the fault that nobody is told of.

    A port that has just come up is enabled by the kernel a moment later, so it is waited for and looked at again.
    """

    def settled() -> bool:
        states = {row["ifname"]: row["state"] for row in json.loads(run(["bridge", "-n", bed.switch, "-j", "link"]))}
        wrong = [end for end in ends if (states.get(end) == "disabled") != silent]
        for end in wrong:
            if states.get(end) == "forwarding" or not silent:
                run(
                    ["bridge", "-n", bed.switch, "link", "set", "dev", end, "state", "0" if silent else "3"],
                    check=False,
                )
        return not wrong

    wait_for(settled, 5, f"the ports {', '.join(ends)} of {bed.switch} did not become {'silent' if silent else 'open'}")


def unplug_node(bed: Bed, number: int) -> None:
    """All cables of a node go dead at once, before its power does: no farewell packet gets out."""
    if namespace_exists(bed.switch):
        here = set(links(bed.switch))
        ends = [end for end in (f"m{number}", *far_ends(bed, number)) if end in here]
        if ends:
            ip([f"link set {end} down" for end in ends], bed.switch)


def drop_all(bed: Bed) -> None:
    """Remove every namespace and link of this prefix."""
    for number in range(1, 9):
        drop_node(bed, number)
    if host_link_exists(bed.host_link):
        ip([f"link del {bed.host_link}"])
    if namespace_exists(bed.switch):
        run(["ip", "netns", "del", bed.switch])


def present(bed: Bed) -> bool:
    return namespace_exists(bed.switch) and host_link_exists(bed.host_link)
