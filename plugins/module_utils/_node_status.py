# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What a node says of itself in one look: units, engine, fabric, memory, what happened last, with anything broken.

Reads files, /proc, systemd and the loopback; nothing here needs the other node or the server to be well.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import _node_history as history
from ._budget_log import of_start
from ._node_config import NodeError, config_root, load
from ._node_http import Api, parse_metrics
from ._node_memory import read_meminfo
from ._node_proc import strangers
from ._node_start import SERVE, scope_of
from ._units import UnitError, outdated, show
from ._watchdog import running_of

ASK_S = 3.0
CLUSTER_S = 20
LAST_EVENTS = 6
SHOWN = ("name", "head", "is_head", "card", "card_source", "executor", "address", "devices", "release", "public_url")


def _tried(what: str, ask: Callable[[], Any], problems: list[str]) -> Any:
    """The answer, or None and a line about why there is none."""
    try:
        return ask()
    except (NodeError, UnitError, OSError, ValueError, KeyError, TypeError) as err:
        problems.append(f"{what}: {err}")
        return None


def _units(node: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    scope = scope_of(node)
    names = [*node["units"], *node.get("side_units", [])]
    states = show(scope, names)
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    result = {}
    for name in names:
        state = states.get(name, {})
        since = int(state.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
        active = state.get("ActiveState", "unknown")
        result[name] = {
            "state": active if active != "activating" else f"activating ({state.get('SubState')})",
            "since_s": round(now - since) if active == "active" and since else None,
            "enabled": state.get("UnitFileState") == "enabled",
            "stale": active == "active" and outdated(scope, name),
            "result": state.get("Result", ""),
        }
    return result


def _server() -> dict[str, Any]:
    """The server as it answers now."""
    serve = load("serve")
    api = Api(serve)
    health, _unused = api.get("/health", ASK_S)
    code, page = api.get("/metrics", ASK_S)
    metrics = parse_metrics(page) if code == 200 else {}
    return {
        "model": serve["model"],
        "health": health,
        "requests": running_of(metrics) if metrics else None,
        "tokens": metrics.get("vllm:generation_tokens_total"),
        "drafted": metrics.get("vllm:spec_decode_num_draft_tokens_total"),
        "accepted": metrics.get("vllm:spec_decode_num_accepted_tokens_total"),
    }


def _cluster(node: Mapping[str, Any]) -> dict[str, Any]:
    """Living nodes and devices as Ray counts them. Ray's own client is needed for that, and may hang."""
    if node["executor"] != "ray":
        return {}
    argv = [f"{node['release']}/bin/python", "-IB", f"{node['root']}/bin/vllm-node", "cluster"]
    environment = {"PATH": "/usr/bin:/bin", "RAY_AUTH_MODE": "token"}
    environment["RAY_AUTH_TOKEN_PATH"] = str(config_root() / "ray.token")
    try:
        done = subprocess.run(argv, capture_output=True, timeout=CLUSTER_S, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"Ray did not answer within {CLUSTER_S} s"}
    found = json.loads(done.stdout or b"{}")
    return found if isinstance(found, dict) and found else {"error": done.stderr.decode(errors="replace")[-300:]}


def _fabric(node: Mapping[str, Any]) -> dict[str, Any]:
    """What the last start of a unit resolved, and how often its GID index has moved."""
    return history.read_json(Path(node["root"]) / "state" / "fabric.json")


def _kv(state: Path) -> Mapping[str, Any]:
    """The engine's own figures of its KV pool, where they are of a start with today's arguments."""
    return of_start(history.read_json(state / history.MEASURED), str(load("serve").get("start_sha256")))


def gather() -> dict[str, Any]:
    """Everything in one structure; what could not be had is in `problems`."""
    problems: list[str] = []
    node = _tried("configuration", lambda: load("node"), problems)
    result: dict[str, Any] = {"problems": problems, "time": time.time()}
    memory = _tried("memory", read_meminfo, problems) or {}
    result["memory"] = {"total": memory.get("MemTotal", 0), "available": memory.get("MemAvailable", 0)}
    result["strangers"] = [str(p) for p in _tried("processes", strangers, problems) or []]
    if node is None:
        return result
    state = Path(node["root"]) / "state"
    events = history.read(state)
    result |= {key: node.get(key) for key in SHOWN}
    result["linger"] = Path("/var/lib/systemd/linger", _user()).exists() if node["scope"] == "user" else None
    result["units"] = _tried("units", lambda: _units(node), problems) or {}
    result["fabric"] = _tried("fabric", lambda: _fabric(node), problems) or {}
    result["events"] = events[-LAST_EVENTS:]
    if node["is_head"]:
        result["server"] = _tried("server", _server, problems) or {}
        result["cluster"] = _tried("Ray", lambda: _cluster(node), problems) or {}
        result["kv"] = _tried("KV pool", lambda: _kv(state), problems) or {}
        result["halted"] = history.read_json(state / history.HALTED)
        result["failures"] = history.failures_in_a_row(events, SERVE)
        result["reason"] = _reason(result, events)
    return result


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _reason(found: Mapping[str, Any], events: list[dict[str, Any]]) -> str:
    """Why the server does not serve, empty where it does."""
    state = str(found["units"].get(SERVE, {}).get("state", "unknown"))
    if state == "active":
        return ""
    if found["halted"]:
        return f"stands still after {found['halted'].get('failures')} failed starts: {found['halted'].get('why')}"
    last = history.last_of(events, SERVE, "stopped")
    why = f"; it ended last because: {last['why']}" if last else ""
    return f"{SERVE} is {state}{why}"


def text(found: Mapping[str, Any]) -> str:
    """The node for a person who is logged in there."""
    lines = [f"{found.get('name', '?')}: card {found.get('card', '?')}, address {found.get('address', '?')}"]
    for unit, state in found.get("units", {}).items():
        since = f" for {state['since_s']} s" if state["since_s"] is not None else ""
        notes = [
            "" if state["enabled"] else "not started at boot",
            "runs from an older definition" if state["stale"] else "",
        ]
        note = ", ".join(filter(None, notes))
        lines.append(f"  {unit:<28} {state['state']}{since}{' - ' + note if note else ''}")
    if found.get("reason"):
        lines.append(f"  {found['reason']}")
    lines += [f"  not ours: {stranger}" for stranger in found["strangers"]]
    lines += [f"  {problem}" for problem in found["problems"]]
    for event in found.get("events", []):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["time"]))
        lines.append(f"  {when} {event.get('unit', '')} {event.get('what', '')} {event.get('why', '')}".rstrip())
    return "\n".join(lines)


def command(option: str = "") -> None:
    """The verb `status`."""
    if option not in ("", "--json"):
        raise NodeError(f"unknown option {option}; known is --json")
    found = gather()
    print(json.dumps(found) if option else text(found))
