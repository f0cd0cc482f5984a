# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Leftovers of a start that ended badly: shared memory segments and Ray session folders that are ours and unused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from ._node_config import load
from ._node_wait import say

# What vLLM and torch leave in /dev/shm when they are killed.
SEGMENTS = ("psm_*", "*cpushm*", "sem.mp-*", "torch_*", "__KMP_REGISTERED_LIB_*", "nccl-*", "vllm*")


def used_files(proc: Path = Path("/proc")) -> set[str]:
    """Files that a process of this user has mapped or open."""
    used: set[str] = set()
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            for line in (entry / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
                parts = line.split(None, 5)
                if len(parts) == 6:
                    used.add(parts[5].removesuffix(" (deleted)"))
            used.update(os.readlink(link) for link in (entry / "fd").iterdir())  # noqa: PTH115
        except OSError:
            # Ended meanwhile, or of another user, whose processes use no segment of ours.
            continue
    return used


def unused_segments(folder: Path, uid: int, used: Iterable[str]) -> list[Path]:
    """Segments of this user that no process uses."""
    taken = set(used)
    return [
        path
        for pattern in SEGMENTS
        for path in sorted(folder.glob(pattern))
        if path.lstat().st_uid == uid and str(path) not in taken and not path.is_dir()
    ]


def dead_sessions(folder: Path, uid: int, used: Iterable[str]) -> list[Path]:
    """Ray session folders of this user in which no process has a file open."""
    taken = [f"{name}/" for name in used]
    return [
        path
        for path in sorted(folder.glob("session_2*"))
        if not path.is_symlink() and path.lstat().st_uid == uid and not any(t.startswith(f"{path}/") for t in taken)
    ]


def clean(shm: Path = Path("/dev/shm"), sessions: Path | None = None) -> list[str]:
    """Remove what is left, and say so. Returns what was removed."""
    uid = os.getuid()
    used = used_files()
    removed = []
    for path in unused_segments(shm, uid, used):
        path.unlink(missing_ok=True)
        removed.append(str(path))
    for path in dead_sessions(sessions, uid, used) if sessions and sessions.is_dir() else ():
        shutil.rmtree(path, ignore_errors=True)
        removed.append(str(path))
    if removed:
        say(f"removed leftovers: {', '.join(removed)}")
    return removed


def command() -> None:
    """The verb `clean`."""
    clean(sessions=Path(load("node")["ray"]["temp_dir"]))
