# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Memory of a node: how much there is now, waiting until it has come back, and the biggest users where it has not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ._node_clean import clean
from ._node_config import NodeError, load
from ._node_proc import PROC
from ._node_wait import say, until
from ._pagecache import drop_tree

GIB = 1 << 30


def meminfo(text: str) -> dict[str, int]:
    """The fields of /proc/meminfo in bytes."""
    fields = {}
    for line in text.splitlines():
        name, _unused, rest = line.partition(":")
        parts = rest.split()
        if parts and parts[0].isdigit():
            fields[name] = int(parts[0]) * (1024 if parts[1:] == ["kB"] else 1)
    return fields


def read_meminfo(proc: Path = PROC) -> dict[str, int]:
    """The memory of this node now."""
    return meminfo((proc / "meminfo").read_text(encoding="ascii"))


def biggest(count: int = 5, proc: Path = PROC) -> list[str]:
    """The processes with the largest resident sets."""
    sizes: list[tuple[int, str]] = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = meminfo((entry / "status").read_text(encoding="utf-8", errors="replace"))
            name = (entry / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
        sizes.append((fields.get("VmRSS", 0), f"{name} (pid {entry.name})"))
    return [f"{name} {size / GIB:.1f} GiB" for size, name in sorted(sizes, reverse=True)[:count]]


def wait_memory(need: int, timeout_s: float) -> float:
    """Wait until as much memory is available; unified memory comes back some time after its process ended."""

    def missing() -> str:
        available = read_meminfo()["MemAvailable"]
        return "" if available >= need else f"{available / GIB:.1f} of {need / GIB:.1f} GiB are available"

    try:
        return until(missing, timeout_s, "free memory", interval_s=1.0)
    except NodeError as err:
        raise NodeError(f"{err}; the biggest users: {', '.join(biggest())}") from err


def prepare(node: Mapping[str, Any], paths: Iterable[str]) -> str:
    """Make the node ready for a load, and say in one line what was done."""
    removed = clean(sessions=Path(node["ray"]["temp_dir"]))
    dropped = drop_tree(*paths)
    memory = node["memory"]
    waited = wait_memory(int(memory["need_bytes"]), float(memory["wait_s"]))
    freed = (dropped["cached_before"] - dropped["cached_after"]) / GIB
    text = (
        f"{read_meminfo()['MemAvailable'] / GIB:.1f} GiB available after {waited:.0f} s, "
        f"{freed:.1f} GiB of page cache dropped, {len(removed)} leftover(s) removed"
    )
    say(f"prepared: {text}")
    return text


def command() -> None:
    """The verb `prepare`."""
    node = load("node")
    prepare(node, node["models"])
