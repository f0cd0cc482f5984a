# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric cable: who has a carrier, cuts that show and cuts that do not, and what the RDMA ports say of it."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from . import network
from .fixtures import FUNCTIONS, PORT_DOWN, PORT_UP
from .options import Bed
from .system import run, wait_for


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
        here = set(network.links(bed.switch))
        present = [number for number in bed.numbers() if f"f0n{number}" in here]
        modes = {number: cut_mode(bed, number) for number in present}
        carrier = plan(present, [number for number, mode in modes.items() if mode == "carrier"], bed.nodes)
        lines = []
        for number, up in carrier.items():
            lines += [f"link set {far} {'up' if up else 'down'}" for far in network.far_ends(bed, number)]
        if lines:
            network.ip(lines, bed.switch)
        for number, up in carrier.items():
            report(bed, number, up)
            if up:
                silence(bed, network.far_ends(bed, number)[: bed.rails], modes[number] == "silent")


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


def report(bed: Bed, number: int, up: bool) -> None:
    """RDMA ports follow their link. Only what the bed set down is set up again: the rest is a test's own edit."""
    mark = bed.node_path(number, "ports-down")
    for function in FUNCTIONS:
        if function.port != 1 or function.twin >= bed.rails:
            continue
        table = f"class/infiniband/{function.device}/ports/1"
        here, there = (PORT_DOWN, PORT_UP) if up else (PORT_UP, PORT_DOWN)
        if up and not mark.exists():
            continue
        for name, text in here.items():
            path = bed.fixture_path(number, table, name)
            if path.exists() and path.read_text() == f"{text}\n":
                # In place: a file that a node sees through a bind mount must stay the same file.
                path.write_text(f"{there[name]}\n")
    if up:
        mark.unlink(missing_ok=True)
    else:
        mark.touch()


def unplug_node(bed: Bed, number: int) -> None:
    """All cables of a node go dead at once, before its power does: no farewell packet gets out."""
    if network.namespace_exists(bed.switch):
        here = set(network.links(bed.switch))
        ends = [end for end in (f"m{number}", *network.far_ends(bed, number)) if end in here]
        if ends:
            network.ip([f"link set {end} down" for end in ends], bed.switch)
