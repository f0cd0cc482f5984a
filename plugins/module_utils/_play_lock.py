# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""One play at a time changes a deployment: a small file on the head that says who works, since when, and from where.

Nobody has to release it: a holder whose process on the controller, or whose connection on the head, is gone is stale.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_AGE_S = 6 * 3600.0


def identity(process: int, proc: Path = Path("/proc")) -> str:
    """A process with its start, so that a number that is used again is another one; empty where it is gone."""
    try:
        stat = (proc / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else f"{process}:{fields[19]}"


def connection(process: int, proc: Path = Path("/proc")) -> str:
    """The session of sshd that a process of the node descends from, as an identity; empty where there is none."""
    seen = 0
    while process > 1 and seen < 64:
        try:
            stat = (proc / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        name, fields = stat.partition("(")[2].rpartition(")")[0], stat.rpartition(")")[2].split()
        if name.startswith("sshd"):
            return identity(process, proc)
        process, seen = int(fields[1]), seen + 1
    return ""


def same_run(holder: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether the holder is the run that asks."""
    return all(holder.get(key) == own.get(key) for key in ("controller", "boot", "process"))


def stale(holder: Mapping[str, Any], own: Mapping[str, Any], now: float, proc: Path = Path("/proc")) -> str:
    """Why the holder no longer counts; empty where it does.

    own["gone"] lists identities of this controller's processes that were looked for and are gone.
    """
    if not holder.get("process"):
        return "it cannot be read"
    here = holder.get("controller") == own.get("controller")
    if here and (holder.get("boot") != own.get("boot") or holder["process"] in own.get("gone", [])):
        return "its process on this controller is gone"
    session = str(holder.get("session") or "")
    if session and identity(int(session.partition(":")[0]), proc) != session:
        return "its connection is gone"
    if now - float(holder.get("since", 0)) > MAX_AGE_S:
        return f"it is older than {MAX_AGE_S / 3600:.0f} hours"
    return ""


def read(path: Path) -> dict[str, Any] | None:
    """The holder, empty where the file cannot be read as one, None where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def describe(holder: Mapping[str, Any]) -> str:
    """The holder for a person."""
    since = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(float(holder.get("since", 0))))
    number = str(holder.get("process", "")).partition(":")[0]
    return f"{holder.get('who')}@{holder.get('controller')} (process {number}, {holder.get('what')}) since {since}"


def take(path: Path, own: Mapping[str, Any], force: bool, now: float) -> tuple[bool, str]:
    """Take the lock. Returns whether the file was written, and what is to be said about a holder that no longer counts.

    Raises PermissionError with the holder's description where somebody else is at work.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    note = ""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    holder = read(path)
    if holder is not None and same_run(holder, own):
        return False, ""
    if holder is not None:
        why = "it was broken on purpose" if force else stale(holder, own, now)
        if not why:
            raise PermissionError(describe(holder))
        note = f"the lock of {describe(holder)} no longer counts: {why}"
        path.unlink(missing_ok=True)
    entry = {key: value for key, value in own.items() if key != "gone"}
    beside.write_text(json.dumps({**entry, "since": now, "session": connection(os.getpid())}) + "\n", encoding="utf-8")
    try:
        # A link fails where another run was quicker: of two that find no holder one gets it.
        os.link(beside, path)
    except FileExistsError:
        other = read(path) or {}
        raise PermissionError(describe(other)) from None
    finally:
        beside.unlink(missing_ok=True)
    return True, note


def release(path: Path, own: Mapping[str, Any]) -> bool:
    """Give the lock back, where it is this run's."""
    holder = read(path)
    if holder is None or not same_run(holder, own):
        return False
    path.unlink(missing_ok=True)
    return True
