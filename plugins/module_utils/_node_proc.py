# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Processes of a node, the units they belong to, and who listens where. Reads /proc alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
OURS = "vllm-"
LISTEN = "0A"
# Names by which engines and Ray show themselves; only to say what is there, never to act upon.
ENGINE_NAMES = ("raylet", "gcs_server", "VLLM::", "RayWorkerProc", "vllm serve")


@dataclass(frozen=True)
class Process:
    """One process as far as this user may see it."""

    pid: int
    uid: int
    command: str
    unit: str

    def __str__(self) -> str:
        return f"pid {self.pid} of uid {self.uid}: {self.command[:120] or '?'}"


def unit_of(cgroup: str) -> str:
    """The innermost service in the text of /proc/PID/cgroup, empty where there is none."""
    services = [part for line in cgroup.splitlines() for part in line.split("/") if part.endswith(".service")]
    return services[-1] if services else ""


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """A process, or None where it ended."""
    folder = proc / str(pid)
    try:
        uid = folder.stat().st_uid
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        if not command:
            command = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        return Process(pid, uid, command, unit_of((folder / "cgroup").read_text(encoding="utf-8")))
    except OSError:
        return None


def processes(proc: Path = PROC) -> Iterator[Process]:
    """All processes."""
    for entry in proc.iterdir():
        if entry.name.isdigit() and (found := read_process(int(entry.name), proc)):
            yield found


def listening(text: str) -> dict[int, tuple[int, int]]:
    """Port to (uid, inode) of the listening sockets in the text of /proc/net/tcp or tcp6."""
    result = {}
    for line in text.splitlines()[1:]:
        parts = line.split()
        if len(parts) > 9 and parts[3] == LISTEN:
            result[int(parts[1].rpartition(":")[2], 16)] = (int(parts[7]), int(parts[9]))
    return result


def listeners(proc: Path = PROC) -> dict[int, tuple[int, int]]:
    """Port to (uid, inode) of everything that listens on TCP."""
    found: dict[int, tuple[int, int]] = {}
    for name in ("net/tcp", "net/tcp6"):
        with contextlib.suppress(OSError):
            found.update(listening((proc / name).read_text(encoding="ascii")))
    return found


def owner_of(inode: int, proc: Path = PROC) -> Process | None:
    """The process that holds a socket; None where it belongs to a user whose files are not ours to see."""
    target = f"socket:[{inode}]"
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if any(os.readlink(link) == target for link in (entry / "fd").iterdir()):  # noqa: PTH115
                return read_process(int(entry.name), proc)
        except OSError:
            continue
    return None


def taken(ports: Iterable[int], proc: Path = PROC) -> dict[int, str]:
    """Those of the ports on which something listens already, each with who it is."""
    found = listeners(proc)
    result = {}
    for port in ports:
        if port in found:
            uid, inode = found[port]
            process = owner_of(inode, proc)
            where = f", in {process.unit}" if process and process.unit else ""
            result[port] = f"{process}{where}" if process else f"a process of uid {uid}"
    return result


def strangers(proc: Path = PROC) -> list[Process]:
    """Engines and Rays that run outside our units: named for a person, never joined and never killed."""
    return [
        process
        for process in processes(proc)
        if any(name in process.command for name in ENGINE_NAMES)
        and not process.unit.startswith(OURS)
        # Somebody's editor or shell that only names one of them is none.
        and not process.command.startswith(("vi ", "grep ", "less ", "tail ", "journalctl ", "sh -c", "bash -c"))
    ]
