# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What happened to the units of a node: starts, readiness, ends with their reasons, and that everything stands still.

systemd forgets its counters at every manual start; this is kept in `state/history.jsonl`, bounded, one event a line.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._node_wait import say

KEEP = 400
NAME = "history.jsonl"
HALTED = "halted.json"
MEASURED = "measured.json"


def append(state: Path, event: Mapping[str, Any], now: float | None = None) -> dict[str, Any]:
    """Add one event, and cut the file when it has grown to twice what is kept. A full disk keeps nothing from running:
    the event is then missing from the status, and the journal says so."""
    full = {"time": round(time.time() if now is None else now, 3), **event}
    path = state / NAME
    try:
        _append_line(path, json.dumps(full, sort_keys=True) + "\n")
    except OSError as err:
        say(f"warning: {path}: {err.strerror or err}; the status will not show this event")
    return full


def _append_line(path: Path, line: str) -> None:
    # One short write to a file opened for appending: two programs cannot mix their lines.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    if len(lines) > 2 * KEEP:
        write_text(path, "".join(lines[-KEEP:]))


def write_text(path: Path, text: str) -> None:
    """A small file in one step, so that a reader or a power cut finds the old or the new."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """A small table in one step. It only serves the status, so a full disk is said and no more."""
    try:
        write_text(path, json.dumps(data, indent=1, sort_keys=True) + "\n")
    except OSError as err:
        say(f"warning: {path}: {err.strerror or err}; the status will not show this")


def read_json(path: Path) -> dict[str, Any]:
    """A small table, empty where it is not there or torn."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read(state: Path, last: int = KEEP) -> list[dict[str, Any]]:
    """The last events, oldest first; a line that a power cut has torn is left out."""
    try:
        lines = (state / NAME).read_text(encoding="utf-8", errors="replace").splitlines()[-last:]
    except OSError:
        return []
    events = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def failures_in_a_row(events: Sequence[Mapping[str, Any]], unit: str) -> int:
    """Ends of a unit since it was ready last."""
    count = 0
    for event in reversed(events):
        if event.get("unit") != unit:
            continue
        if event.get("what") == "ready":
            break
        count += event.get("what") == "stopped"
    return count


def last_of(events: Sequence[Mapping[str, Any]], unit: str, what: str) -> Mapping[str, Any]:
    """The latest event of a kind, or an empty one."""
    return next((e for e in reversed(events) if e.get("unit") == unit and e.get("what") == what), {})
