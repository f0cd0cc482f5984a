# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Waiting for a condition, with an end and a reason. Nothing here waits for time to pass."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from ._node_config import NodeError

INTERVAL_S = 0.5


def say(text: str) -> None:
    """One line for the journal, at once."""
    print(text, flush=True)


def until(
    probe: Callable[[], str],
    timeout_s: float,
    what: str,
    interval_s: float = INTERVAL_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> float:
    """Call `probe` until it returns an empty text, and return the seconds it took.

    Its text says what is missing; it goes to the journal whenever it changes, and into the error at the end.
    """
    start = clock()
    last = ""
    while True:
        missing = probe()
        if not missing:
            return clock() - start
        if missing != last:
            say(f"waiting for {what}: {missing}")
            last = missing
        if clock() - start >= timeout_s:
            raise NodeError(f"{what} did not come within {timeout_s:.0f} s: {missing}")
        pause(interval_s)


def port_open(address: str, port: int, timeout_s: float = 2.0) -> str:
    """Empty where something accepts connections there, else what happened instead."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s):
            return ""
    except OSError as err:
        return f"{address}:{port} does not answer ({err.strerror or err})"


def process_gone(pid: int) -> bool:
    """Whether a process has ended. A zombie has."""
    if not pid:
        return False
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def main_pid() -> int:
    """The unit's main process as systemd names it to ExecStartPost=, 0 where it does not."""
    value = os.environ.get("MAINPID", "")
    return int(value) if value.isdigit() else 0
