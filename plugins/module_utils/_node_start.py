# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What the units do around their main process: before it, after it until it answers, and when it has ended."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _node_history as history
from ._budget_log import measured_from_log
from ._node_clean import clean
from ._node_config import NodeError, load, state_dir
from ._node_http import Api
from ._node_journal import lines
from ._node_proc import taken
from ._node_reason import ELSEWHERE, reason
from ._node_wait import main_pid, port_open, process_gone, say, until
from ._units import Scope, stamp_path, write_stamp

SERVE = "vllm-serve.service"
RANK = "vllm-rank.service"
JOURNAL_LINES = 1000
# Of a whole start; Ray passes on what every rank says.
START_LINES = 20_000


def scope_of(node: Mapping[str, Any]) -> Scope:
    """The systemd that the units of this node belong to."""
    return Scope(node["scope"], int(node["uid"]))


def is_ray(unit: str) -> bool:
    """Whether the unit is one of Ray."""
    return unit.startswith("vllm-ray-")


def ports_of(node: Mapping[str, Any], unit: str) -> list[int]:
    """The ports that a unit is going to listen on."""
    if is_ray(unit):
        ray = node["ray"]
        return [ray["port"], ray["client_port"]] * bool(node["is_head"]) + [ray["node_manager_port"]]
    return [load("serve")["probe"][1]] if unit == SERVE else []


def wait_ports(node: Mapping[str, Any], unit: str) -> None:
    """Wait until nobody else listens on the unit's ports. Who does is named, and left alone."""

    def missing() -> str:
        return "; ".join(f"port {port} is taken by {who}" for port, who in taken(ports_of(node, unit)).items())

    until(missing, float(node["wait_port_s"]), "free ports", interval_s=1.0)


def wait_head(node: Mapping[str, Any], what: str, port: int) -> None:
    """A worker waits here, at next to no cost, until its counterpart on the head accepts connections."""
    took = until(
        lambda: port_open(node["head_address"], port), float(node["wait_head_s"]), f"{what} of the head {node['head']}"
    )
    say(f"{what} of the head answered after {took:.1f} s")


def stamp(unit: str) -> None:
    """For units that need nothing else before their start."""
    write_stamp(scope_of(load("node")), unit)


def before(unit: str) -> None:
    """ExecStartPre: keep what this start is made from, clear the way, and wait for what the unit needs."""
    node = load("node")
    state = state_dir(node)
    write_stamp(scope_of(node), unit)
    history.append(state, {"unit": unit, "what": "start"})
    if unit == SERVE:
        (state / history.HALTED).unlink(missing_ok=True)
    wait_ports(node, unit)
    if is_ray(unit):
        if not node["is_head"]:
            wait_head(node, "Ray", node["ray"]["port"])
        clean(sessions=Path(node["ray"]["temp_dir"]))
    elif node["executor"] == "ray":
        from . import _node_gate

        _node_gate.enter(node, "gate")
    else:
        from ._node_memory import prepare

        if unit == RANK:
            wait_head(node, "the first rank", node["meet"][1])
        prepare(node, node["models"])


def after(unit: str) -> None:
    """ExecStartPost: the unit is active when this ends, which is when it answers."""
    node = load("node")
    took = _wait_local(node) if is_ray(unit) else _wait_ready()
    history.append(state_dir(node), {"unit": unit, "what": "ready", "seconds": round(took, 1)})
    if unit == SERVE:
        keep_measured(node)


def keep_measured(node: Mapping[str, Any]) -> None:
    """Keep what the engine said of its KV pool, for the next run's budget, with the start that it holds for."""
    scope, start = scope_of(node), load("serve").get("start_sha256")
    since = stamp_path(scope, SERVE).stat().st_mtime
    figures = measured_from_log("\n".join(lines(scope.name, SERVE, START_LINES, since)))
    if start and figures:
        kept = {**figures, "start_sha256": start, "time": round(time.time())}
        history.write_json(state_dir(node) / history.MEASURED, kept)


def _wait_local(node: Mapping[str, Any]) -> float:
    """A Ray unit answers when its own raylet (and on the head GCS) accepts connections."""
    ray = node["ray"]
    ports = [ray["node_manager_port"]] + ([ray["port"]] if node["is_head"] else [])
    pid = main_pid()

    def missing() -> str:
        if process_gone(pid):
            raise NodeError(f"ray ended before its ports opened; {ELSEWHERE}")
        return next((text for port in ports if (text := port_open(node["address"], port))), "")

    took = until(missing, float(ray["start_s"]), "Ray of this node")
    say(f"Ray is up after {took:.1f} s")
    return took


def _wait_ready() -> float:
    """The server answers when a real completion came. Ends at once when its main process does."""
    serve = load("serve")
    api = Api(serve)
    pid = main_pid()

    def missing() -> str:
        if process_gone(pid):
            raise NodeError(f"the server ended before it answered; {ELSEWHERE}")
        refused = port_open(*serve["probe"])
        return refused or api.completion(int(serve["probe_tokens"]), float(serve["probe_timeout_s"]))

    took = until(missing, float(serve["ready_s"]), "a completion", interval_s=1.0)
    say(f"ready: a completion came after {took:.1f} s")
    return took


def ended(unit: str) -> None:
    """ExecStopPost: keep why it ended, and remove what it left."""
    node = load("node")
    scope = scope_of(node)
    try:
        since = stamp_path(scope, unit).stat().st_mtime
    except OSError:
        since = 0.0
    result, code, status = (os.environ.get(key, "") for key in ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS"))
    why = reason(lines(scope.name, unit, JOURNAL_LINES, since), result, code, status)
    history.append(
        state_dir(node),
        {"unit": unit, "what": "stopped", "why": why, "result": result, "code": code, "status": status},
    )
    say(f"ended: {why}")
    clean()


def halt() -> None:
    """After the last start that the limit allows: keep the reason in one place. The unit of this verb ends Ray."""
    node = load("node")
    state = state_dir(node)
    events = history.read(state)
    last = history.last_of(events, SERVE, "stopped")
    failures = history.failures_in_a_row(events, SERVE)
    why = str(last.get("why") or "its end is not known")
    text = (
        f"stands still after {failures} failed starts: {why}. Mend the cause and run site.yml, or playbooks/start.yml"
    )
    history.write_json(state / history.HALTED, {"time": last.get("time", 0), "failures": failures, "why": why})
    history.append(state, {"unit": SERVE, "what": "halted", "why": why})
    say(text)
