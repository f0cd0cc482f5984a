# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What tells afterwards why a node did not serve: collected before anything is ended, bounded in time and size."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _node_history as history
from ._node_config import load, state_dir
from ._node_http import Api
from ._node_journal import lines
from ._node_memory import biggest
from ._node_proc import PROC, processes, strangers
from ._node_start import SERVE

ITEM_BYTES = 400_000
EVENT_BYTES = 4_000_000
KEEP_EVENTS = 20
JOURNAL_LINES = 400
COMMAND_S = 15


def _run(argv: list[str], environment: Mapping[str, str] | None = None) -> str:
    """What a program prints, or why it could not."""
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=COMMAND_S, check=False, env={**os.environ, **(environment or {})}
        )
    except FileNotFoundError:
        return f"{argv[0]}: not installed\n"
    except (OSError, subprocess.TimeoutExpired) as err:
        return f"{' '.join(argv)}: {err}\n"
    return (done.stdout + done.stderr).decode(errors="replace")


def _stacks(node: Mapping[str, Any]) -> str:
    """Stacks of the engine's Python processes, where py-spy is installed and the kernel lets it look."""
    program = shutil.which("py-spy", path=f"{node['release']}/bin:/usr/local/bin:/usr/bin")
    if not program:
        return "py-spy: not installed\n"
    engine = [
        p for p in processes() if p.unit.startswith("vllm-") and ("VLLM" in p.command or "vllm serve" in p.command)
    ]
    return "".join(f"== {process}\n{_run([program, 'dump', '--pid', str(process.pid)])}\n" for process in engine[:8])


def local(node: Mapping[str, Any]) -> dict[str, str]:
    """The evidence of this node by name."""
    items = {
        f"{unit.removesuffix('.service')}.log": "\n".join(lines(node["scope"], unit, JOURNAL_LINES)) + "\n"
        for unit in node["units"]
    }
    items["memory.txt"] = (PROC / "meminfo").read_text(encoding="ascii") + "\n".join(biggest(12)) + "\n"
    items["processes.txt"] = "".join(f"{p} [{p.unit}]\n" for p in processes() if p.unit.startswith("vllm-"))
    items["strangers.txt"] = "".join(f"{p}\n" for p in strangers())
    items["nvidia-smi.txt"] = _run(["nvidia-smi"])
    items["stacks.txt"] = _stacks(node)
    return {name: text[-ITEM_BYTES:] for name, text in items.items()}


def of_the_head(node: Mapping[str, Any]) -> dict[str, str]:
    """What only the head can ask: the server's counters, Ray's state, and the evidence of the other nodes."""
    items = {}
    for path in ("/health", "/metrics"):
        status, text = Api(load("serve")).get(path, 5)
        items[f"{path[1:]}.txt"] = f"status {status}\n{text[-ITEM_BYTES:]}"
    if node["executor"] == "ray":
        address = f"{node['head_address']}:{node['ray']['port']}"
        items["ray-status.txt"] = _run([f"{node['release']}/bin/ray", "status", "--address", address], _ray(node))
        program = f"{node['root']}/bin/vllm-node"
        items["other-nodes.json"] = _run([f"{node['release']}/bin/python", "-IB", program, "gather"], _ray(node))
    return items


def _ray(node: Mapping[str, Any]) -> dict[str, str]:
    from ._node_config import config_root

    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(config_root() / "ray.token")}


def save(node: Mapping[str, Any], kind: str, why: str, items: Mapping[str, str]) -> Path:
    """A folder of its own for the event, and the oldest ones removed."""
    events = state_dir(dict(node)) / "events"
    folder = events / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{kind}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    left = EVENT_BYTES
    for name, text in {"why.txt": why + "\n", **items}.items():
        data = text.encode(errors="replace")[-max(0, left) :] if left > 0 else b""
        (folder / name).write_bytes(data)
        left -= len(data)
    for old in sorted(events.iterdir())[:-KEEP_EVENTS]:
        shutil.rmtree(old, ignore_errors=True)
    history.append(events.parent, {"unit": SERVE, "what": kind, "why": why, "folder": str(folder)})
    return folder


def command() -> None:
    """The verb `evidence`: this node's, as JSON."""
    print(json.dumps(local(load("node"))))


def gather() -> None:
    """The verb `gather`: the evidence of every other node, by host. Runs under the release's Python."""
    from ._node_gate import on_every_node

    node = load("node")
    others = {name: text for name, (_, text) in on_every_node(node, "evidence", COMMAND_S).items()}
    others.pop(node["name"], None)
    print(json.dumps(others))
