# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What the units do before and after their main process: stamp, waits, readiness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._node_config import NodeError, load
from ._node_http import Api
from ._node_wait import main_pid, port_open, process_gone, say, until
from ._units import Scope, write_stamp


def scope_of(node: Mapping[str, Any]) -> Scope:
    """The systemd that the units of this node belong to."""
    return Scope(node["scope"], int(node["uid"]))


def stamp(unit: str) -> None:
    """Keep what this start is made from, so that a play can tell whether a restart is due."""
    write_stamp(scope_of(load("node")), unit)


def wait_head() -> None:
    """A worker waits here until the head's Ray accepts connections."""
    node = load("node")
    ray = node["ray"]
    took = until(
        lambda: port_open(node["head_address"], ray["port"]),
        float(node["wait_head_s"]),
        f"Ray of the head {node['head']}",
    )
    say(f"the head's Ray answered after {took:.1f} s")


def wait_local() -> None:
    """A Ray unit is active when its own raylet (and on the head GCS) accepts connections."""
    node = load("node")
    ray = node["ray"]
    ports = [ray["node_manager_port"]] + ([ray["port"]] if node["is_head"] else [])
    pid = main_pid()

    def missing() -> str:
        if process_gone(pid):
            raise NodeError("ray ended before its ports opened; its own lines above say why")
        return next((text for port in ports if (text := port_open(node["address"], port))), "")

    say(f"Ray is up after {until(missing, float(ray['start_s']), 'Ray of this node'):.1f} s")


def wait_ready() -> None:
    """The server is active when a real completion came. Ends at once when its main process does."""
    serve = load("serve")
    api = Api(serve)
    pid = main_pid()

    def missing() -> str:
        if process_gone(pid):
            raise NodeError("the server ended before it answered; its own lines above say why")
        refused = port_open(*serve["probe"])
        return refused or api.completion(int(serve["probe_tokens"]), float(serve["probe_timeout_s"]))

    took = until(missing, float(serve["ready_s"]), "a completion", interval_s=1.0)
    say(f"ready: a completion came after {took:.1f} s")
