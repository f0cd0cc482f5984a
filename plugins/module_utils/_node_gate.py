# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The gate before a server over Ray: as many free devices as the card takes, on living nodes that are ready for a load.

Runs under the release's Python, because it asks Ray's GCS by Ray's own client: one process that asks again and again
instead of one `ray status` a second. What has to be done on every node goes through Ray too, so that no other door
between the nodes is needed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._node_config import NodeError, load
from ._node_wait import say, until

# More than the wait for memory itself: Ray starts a worker process for each task.
TASK_MARGIN_S = 90.0
PROGRAM = ".local/share/dgx-spark-vllm/bin/vllm-node"


def missing_devices(
    hosts: Mapping[str, str], devices: int, table: Sequence[Mapping[str, Any]], free: Mapping[str, Mapping[str, float]]
) -> str:
    """What the cluster lacks; empty where it is whole and idle.

    hosts: inventory name to fabric address; devices: how many the card takes; table: Ray's nodes (NodeID, Alive,
    NodeManagerAddress, Resources); free: available resources by NodeID.
    """
    alive = {str(n["NodeManagerAddress"]): n for n in table if n["Alive"]}
    absent = [f"{name} ({address})" for name, address in hosts.items() if address not in alive]
    strange = sorted(set(alive) - set(hosts.values()))
    total = sum(float(n["Resources"].get("GPU", 0)) for n in alive.values())
    idle = sum(float(free.get(str(n["NodeID"]), {}).get("GPU", 0)) for n in alive.values())
    if absent:
        return f"{total:.1f}/{devices} devices, missing in Ray: {', '.join(absent)}"
    if strange:
        return f"nodes that are not of this deployment: {', '.join(strange)}"
    if total < devices:
        return f"{total:.1f}/{devices} devices on {len(alive)} node(s)"
    if idle < devices:
        return f"{total - idle:.1f}/{devices} devices are still taken by the server before"
    return ""


def enter(node: Mapping[str, Any], verb: str) -> None:
    """Become the verb `verb` under the release's Python."""
    python = f"{node['release']}/bin/python"
    if not Path(python).exists():
        raise NodeError(f"{python} is not there: run site.yml")
    os.execv(python, [python, "-IB", sys.argv[0], verb])


def _address(node: Mapping[str, Any]) -> str:
    return f"{node['head_address']}:{node['ray']['port']}"


def _state(node: Mapping[str, Any]) -> Any:
    """Ray's own reader of GCS, which needs no driver."""
    options = importlib.import_module("ray")._raylet.GcsClientOptions
    state = importlib.import_module("ray._private.state").GlobalState()
    state._initialize_global_state(
        options.create(_address(node), None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    )
    return state


def cluster() -> None:
    """The verb `cluster`: living nodes, and devices in use and in all, as JSON."""
    node = load("node")
    state = _state(node)
    table, free = state.node_table(), state.available_resources_per_node()
    alive = [n for n in table if n["Alive"]]
    total = sum(float(n["Resources"].get("GPU", 0)) for n in alive)
    idle = sum(float(free.get(str(n["NodeID"]), {}).get("GPU", 0)) for n in alive)
    print(json.dumps({"nodes": [str(n["NodeManagerAddress"]) for n in alive], "devices": total, "used": total - idle}))


def wait_cluster(node: Mapping[str, Any]) -> float:
    """Wait for the whole, idle cluster; returns the seconds it took."""
    state = _state(node)

    def missing() -> str:
        try:
            return missing_devices(
                node["hosts"], int(node["devices"]), state.node_table(), state.available_resources_per_node()
            )
        except Exception as err:  # whatever Ray raises while its GCS comes up
            return f"{_address(node)}: {str(err).splitlines()[0] if str(err) else type(err).__name__}"

    return until(missing, float(node["wait_ray_s"]), "the nodes of Ray", interval_s=1.0)


def on_every_node(node: Mapping[str, Any], verb: str, timeout_s: float) -> dict[str, tuple[int, str]]:
    """Run a verb of vllm-node on every living node of the cluster: exit code and output by host."""
    ray = importlib.import_module("ray")
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    ray.init(address=_address(node), log_to_driver=False, logging_level="ERROR", namespace="vllm-node")

    def call() -> tuple[int, str]:
        # Travels to the other nodes as it is, so it may use nothing of this module.
        import pwd
        import subprocess

        program = f"{pwd.getpwuid(os.getuid()).pw_dir}/{PROGRAM}"
        done = subprocess.run([program, verb], capture_output=True, text=True, timeout=timeout_s, check=False)
        return done.returncode, (done.stdout + done.stderr).strip()

    names = {address: name for name, address in node["hosts"].items()}
    task = ray.remote(num_cpus=0, max_retries=0)(call)
    pending = {
        names.get(n["NodeManagerAddress"], n["NodeManagerAddress"]): task.options(
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(n["NodeID"], soft=False)
        ).remote()
        for n in ray.nodes()
        if n["Alive"]
    }
    result = {}
    try:
        for name, ref in pending.items():
            try:
                result[name] = ray.get(ref, timeout=timeout_s + TASK_MARGIN_S)
            except Exception as err:  # a node that went away, or one that does not answer in time
                result[name] = (1, f"{type(err).__name__}: {str(err).splitlines()[0] if str(err) else ''}")
    finally:
        ray.shutdown()
    return result


def gate() -> None:
    """Wait for the whole cluster, then make every node ready for a load."""
    node = load("node")
    took = wait_cluster(node)
    say(f"Ray has {node['devices']} free device(s) on {len(node['hosts'])} node(s), after {took:.1f} s")
    results = on_every_node(node, "prepare", float(node["memory"]["wait_s"]) + 60)
    for name, (_unused, text) in results.items():
        say(f"{name}: {text}")
    failed = [f"{name}: {text}" for name, (code, text) in results.items() if code]
    if absent := sorted(set(node["hosts"]) - set(results)):
        failed.append(f"{', '.join(absent)}: not reached through Ray")
    if failed:
        raise NodeError("; ".join(failed))
