# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What tells afterwards why a node did not serve: collected before anything is ended, bounded in time and size."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import _node_history as history
from ._node_config import config_root, load, state_dir
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
ENGINE = ("VLLM::", "vllm serve", "RayWorkerProc")
# Through Ray, which starts a process on each node for it.
GATHER_S = 40


def _run(argv: list[str], environment: Mapping[str, str] | None = None, timeout_s: float = COMMAND_S) -> str:
    """What a program prints, or why it could not."""
    full = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(argv, capture_output=True, timeout=timeout_s, check=False, env=full)
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
    engine = [p for p in processes() if p.unit.startswith("vllm-") and any(name in p.command for name in ENGINE)]
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
    """What only the head can ask: the server's counters, Ray's state, and the evidence of the other nodes.

    All at once, since each may hang: the server is to be ended, and waits for this.
    """
    python, program = f"{node['release']}/bin/python", f"{node['root']}/bin/vllm-node"
    address = f"{node['head_address']}:{node['ray']['port']}"
    asks: dict[str, Callable[[], str]] = {
        "health.txt": lambda: _page("/health"),
        "metrics.txt": lambda: _page("/metrics"),
    }
    if node["executor"] == "ray":
        asks["ray-status.txt"] = lambda: _run(
            [f"{node['release']}/bin/ray", "status", "--address", address], _ray(), GATHER_S
        )
        asks["other-nodes.json"] = lambda: _run([python, "-IB", program, "gather"], _ray(), GATHER_S)
    asks["local"] = lambda: json.dumps(local(node))
    with ThreadPoolExecutor(len(asks)) as pool:
        answers = {name: pool.submit(ask) for name, ask in asks.items()}
    items: dict[str, str] = json.loads(answers.pop("local").result())
    return items | {name: answer.result() for name, answer in answers.items()}


def _page(path: str) -> str:
    status, text = Api(load("serve")).get(path, 5)
    return f"status {status}\n{text[-ITEM_BYTES:]}"


def _ray() -> dict[str, str]:
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
    others = {name: text for name, (_unused, text) in on_every_node(node, "evidence", COMMAND_S).items()}
    others.pop(node["name"], None)
    print(json.dumps(others))
