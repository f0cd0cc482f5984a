# SPDX-License-Identifier: GPL-3.0-or-later
"""A control group per node, on hosts with pure v2, hybrid or v1 hierarchies, with or without systemd as PID 1.

It is also how the bed finds its processes again: whatever happened to the tool, a node's processes are in its group.
"""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

from .options import Bed
from .system import BedError, wait_for

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")


def host_has_systemd() -> bool:
    return Path("/run/systemd/system").is_dir()


def unit(bed: Bed, number: int) -> str:
    return f"{bed.prefix}-node{number}.scope"


def hierarchies(root: Path = ROOT) -> list[Path]:
    """Where process groups live: the unified tree alone, or systemd's own and the unified one beside it."""
    if (root / "cgroup.controllers").exists():
        return [root]
    found = [root / name for name in ("systemd", "unified") if (root / name / "cgroup.procs").exists()]
    if not found:
        raise BedError(f"no cgroup hierarchy for systemd below {root}; systemd-nspawn cannot boot a node here")
    return found


def folders(bed: Bed, number: int) -> list[Path]:
    """A node's group in every hierarchy. systemd as PID 1 hands out a delegated scope, else it lies at the top."""
    name = f"system.slice/{unit(bed, number)}" if host_has_systemd() else f"{bed.prefix}-node{number}"
    return [hierarchy / name for hierarchy in hierarchies()]


def join(bed: Bed, number: int, part: str) -> None:
    """Move the calling process into a part of the node's group."""
    for folder in folders(bed, number):
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / "cgroup.procs").write_text(str(os.getpid()))


def delegate(bed: Bed, number: int) -> None:
    """Let the guest have every controller the host can give; a group that has none goes without."""
    for folder in folders(bed, number):
        available = folder / "cgroup.controllers"
        if not available.exists():
            continue
        for controller in set(available.read_text().split()) & set(CONTROLLERS):
            try:
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:
                # Real-time or threaded settings of the host can refuse one; the guest then lacks that one.
                continue


def processes(bed: Bed, number: int) -> set[int]:
    """Every process of a node, in any sub-group of any hierarchy."""
    found: set[int] = set()
    for folder in folders(bed, number):
        # os.walk: the guest removes groups while we look, and it passes over what is gone.
        for path, _, _ in os.walk(folder):
            try:
                found.update(int(line) for line in Path(path, "cgroup.procs").read_text().split())
            except OSError:
                continue
    found.discard(0)
    return found


def keepers(bed: Bed) -> set[int]:
    """Processes started for this bed that may not be in a group yet: they carry its folder in their environment.

    The logins of an `up` that was killed live on for a moment; they are known by the bed's own SSH configuration.
    """
    mark = f"BED_KEEPER={bed.directory}".encode()
    config = str(bed.path("ssh_config")).encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = path.with_name("cmdline").read_bytes().split(b"\0")
            if mark in path.read_bytes().split(b"\0") or (words[0] == b"ssh" and config in words):
                found.add(int(path.parent.name))
        except OSError:
            continue
    found.discard(os.getpid())
    return found


def kill(pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def remove_part(bed: Bed, number: int, part: str = "") -> None:
    """Remove a node's group or a part of it, deepest first; its processes are dead, but the kernel may be slow."""
    for folder in folders(bed, number):
        top = folder / part if part else folder
        wait_for(functools.partial(removed, top), 10, f"control group {top} could not be removed")


def removed(top: Path) -> bool:
    for path, _, _ in os.walk(top, topdown=False):
        try:
            Path(path).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def clear(bed: Bed) -> None:
    """Kill everything of this bed and remove its groups."""

    def gone() -> bool:
        left = keepers(bed).union(*(processes(bed, number) for number in range(1, 9)))
        kill(left)
        return not left

    wait_for(gone, 30, f"processes of bed {bed.prefix} did not die")
    for number in range(1, 9):
        remove_part(bed, number)
