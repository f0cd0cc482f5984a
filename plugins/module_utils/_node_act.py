# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Ending a unit's processes from beside it. systemd starts the unit again; no privilege is needed in either scope."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from ._node_proc import processes
from ._node_start import scope_of
from ._units import UnitError, show


def main_pid_of(node: Mapping[str, Any], unit: str) -> int:
    """The unit's main process, 0 where none runs."""
    return int(show(scope_of(node), [unit]).get(unit, {}).get("MainPID") or 0)


def state_of(node: Mapping[str, Any], unit: str) -> dict[str, str]:
    """What systemd says of the unit, nothing where it does not answer."""
    try:
        return show(scope_of(node), [unit]).get(unit, {})
    except UnitError:
        return {}


def kill_main(node: Mapping[str, Any], unit: str) -> bool:
    """SIGKILL to the main process; systemd ends the rest of the group and starts the unit again."""
    pid = main_pid_of(node, unit)
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pid)


def kill_group(units: Iterable[str]) -> int:
    """SIGKILL to every process of the units at once: memory has to come back now. Returns how many there were."""
    names = set(units)
    found = [process.pid for process in processes() if process.unit in names]
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def forget_failures(node: Mapping[str, Any], unit: str) -> None:
    """Reset systemd's counters of a unit that has been stable, where this user may."""
    if node["scope"] == "user" and state_of(node, unit).get("NRestarts", "0") != "0":
        scope_of(node).call("reset-failed", unit, check=False)
