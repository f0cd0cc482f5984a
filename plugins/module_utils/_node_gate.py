# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The gate before a server over Ray: as many free devices as the card takes, on living nodes, and no more.

Runs under the release's Python, because it asks Ray's GCS by Ray's own client: one process that asks again and again
instead of one `ray status` a second.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._node_config import NodeError, load
from ._node_wait import say, until


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


def enter(node: Mapping[str, Any]) -> None:
    """Become this module's `main` under the release's Python."""
    python = f"{node['release']}/bin/python"
    if not Path(python).exists():
        raise NodeError(f"{python} is not there: run site.yml")
    os.execv(python, [python, "-IB", sys.argv[0], "gate-ray"])


def main() -> None:
    """Wait for the whole cluster."""
    ray = importlib.import_module("ray")
    node = load("node")
    address = f"{node['head_address']}:{node['ray']['port']}"
    state = importlib.import_module("ray._private.state").GlobalState()
    state._initialize_global_state(
        ray._raylet.GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    )

    def missing() -> str:
        try:
            return missing_devices(
                node["hosts"], int(node["devices"]), state.node_table(), state.available_resources_per_node()
            )
        except Exception as err:  # whatever Ray raises while its GCS comes up
            return f"{address}: {str(err).splitlines()[0] if str(err) else type(err).__name__}"

    took = until(missing, float(node["wait_ray_s"]), "the nodes of Ray", interval_s=1.0)
    say(f"Ray has {node['devices']} free device(s) on {len(node['hosts'])} node(s), after {took:.1f} s")
