# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What the last start chose, and what moved since: the file that a status reads without asking anything again."""

from __future__ import annotations

import json
import os
import time

# pathlib would be the dearest import of a unit's start.
# ruff: noqa: PTH103, PTH105, PTH108, PTH111, PTH120, PTH123

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._roce_types import Rail, Resolution

DEFAULT_PATH = "~/.local/share/dgx-spark-vllm/state/fabric.json"
_KEPT = ("address", "subnet", "netdev", "device", "port", "state", "mtu", "speed_mbps", "gid_index")


def default_path() -> str:
    """Where the state lies unless an option says otherwise."""
    return os.path.expanduser(DEFAULT_PATH)


def load(path: str) -> dict[str, Any]:
    """The state of the last start; empty where there is none, or none that can be read: it is only a memory."""
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def advance(old: dict[str, Any], resolution: Resolution, now: float, waited_s: float, unit: str) -> dict[str, Any]:
    """The state after this resolution. A rail is known by its address: names and indices are what moves."""
    stamp = utc(now)
    known = {rail["address"]: rail for rail in old.get("rails", []) if isinstance(rail, dict) and "address" in rail}
    return {
        "version": 1,
        "rails": [_advance_rail(known.get(rail["address"]), rail, stamp) for rail in resolution["rails"]],
        "environment": resolution["environment"],
        "warnings": resolution["warnings"],
        "errors": resolution["errors"],
        "resolved_at": stamp,
        "waited_s": round(waited_s, 1),
        "unit": unit,
    }


def _advance_rail(old: dict[str, Any] | None, rail: Rail, stamp: str) -> dict[str, Any]:
    new: dict[str, Any] = {key: rail[key] for key in _KEPT}  # type: ignore[literal-required]
    new |= {"since": stamp, "moved": None}
    if old is None:
        return new
    place = (old.get("device"), old.get("gid_index"))
    if place == (rail["device"], rail["gid_index"]):
        return new | {"since": old.get("since", stamp), "moved": old.get("moved")}
    moved = {"from": old.get("gid_index"), "to": rail["gid_index"], "at": stamp}
    if old.get("device") != rail["device"]:
        moved |= {"from_device": old.get("device"), "to_device": rail["device"]}
    return new | {"moved": moved}


def utc(now: float) -> str:
    """A time as people and programs read it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def save(path: str, state: dict[str, Any]) -> None:
    """Write the state as a whole or not at all: two units may start at once, and a power cut may come."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(state, stream, indent=1)
            stream.write("\n")
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):  # noqa: PTH110
            os.unlink(temporary)
        raise


def moved_text(rail: dict[str, Any]) -> str:
    """`moved 3 → 5 (time)`, or an empty string."""
    moved = rail.get("moved")
    if not moved:
        return ""
    device = f"{moved['from_device']} → {moved['to_device']}, " if "from_device" in moved else ""
    return f"moved {device}{moved['from']} → {moved['to']} ({moved['at']})"
