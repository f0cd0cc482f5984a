# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What must be true of all nodes together before anything is changed; every fault of every host in one list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._report import Fault, fault

SYSTEMD_LEAST = 254
"""RestartSteps=, with which the units' pauses grow, came with systemd 254."""

PYTHON_LEAST = (3, 12)
"""The Python of DGX OS; the programs that units run are written for it."""

GIB = 1024**3


def gib(size: float) -> str:
    """Bytes as GiB with one decimal."""
    return f"{size / GIB:.1f} GiB"


def _host_faults(host: str, node: Mapping[str, Any]) -> list[Fault]:
    """Faults of one host that need no comparison."""
    faults = []
    if node["systemd"] < SYSTEMD_LEAST:
        faults.append(
            fault(
                host,
                "systemd",
                f"version {node['systemd'] or 'unknown'}",
                f"{SYSTEMD_LEAST} or newer: units restart with growing pauses (RestartSteps=)",
                "upgrade the operating system (DGX OS 7 and Ubuntu 24.04 have 255)",
            )
        )
    minor = tuple(int(part) for part in node["python"]["minor"].split("."))
    if minor < PYTHON_LEAST or not node["python"]["path"].startswith("/usr/bin/"):
        faults.append(
            fault(
                host,
                "Python",
                f"{node['python']['version']} at {node['python']['path']}",
                "the system's /usr/bin/python3, 3.12 or newer",
                "set ansible_python_interpreter to /usr/bin/python3, or upgrade the operating system",
            )
        )
    return faults


def _memory_faults(host: str, deployment: Mapping[str, Any], reserve: int) -> list[Fault]:
    """Whether the caps of the units and the reserve fit into the node's memory."""
    caps = deployment["card"]["caps"]
    parts = {"Ray head": caps.get("head"), "vLLM driver": caps.get("driver")}
    if not deployment["is_head"]:
        parts = {"Ray worker": caps.get("worker")}
    known = {name: int(size) for name, size in parts.items() if size}
    total = int(deployment["node"]["memory"]["total"])
    if not known or sum(known.values()) + reserve <= total:
        return []
    terms = " + ".join(f"{name} {gib(size)}" for name, size in known.items())
    return [
        fault(
            host,
            "memory caps",
            f"{terms} + reserve {gib(reserve)} = {gib(sum(known.values()) + reserve)}",
            f"at most {gib(total)}, the memory of the node",
            "lower the caps in the card or preflight_memory_reserve_bytes",
        )
    ]


def _ipc_warning(host: str, node: Mapping[str, Any]) -> list[Fault]:
    """logind's RemoveIPC deletes semaphores of a user without linger at logout."""
    if node["linger"] or not node["remove_ipc"]:
        return []
    return [
        fault(
            host,
            "logind RemoveIPC",
            "yes, and linger is off: semaphores and shared memory vanish at the last logout",
            "linger on, which this run enables",
            "nothing to do; or set RemoveIPC=no in /etc/systemd/logind.conf",
        )
    ]


def _parity(deployments: Mapping[str, Mapping[str, Any]]) -> tuple[list[Fault], list[Fault]]:
    """What must be equal on all nodes (errors) and what should be (warnings)."""
    errors: list[Fault] = []
    warnings: list[Fault] = []
    readers: tuple[tuple[str, list[Fault], Callable[[Mapping[str, Any]], Any]], ...] = (
        ("Python", errors, lambda node: node["python"]["minor"]),
        ("architecture", errors, lambda node: node["arch"]),
        ("kernel", warnings, lambda node: node["kernel"]),
        ("NVIDIA driver", warnings, lambda node: next((gpu["driver"] for gpu in node["gpus"]), "none")),
        ("CUDA compiler", warnings, lambda node: node["nvcc"] or "none"),
        ("systemd", warnings, lambda node: str(node["systemd"])),
    )
    for subject, out, read in readers:
        values = {host: str(read(deployment["node"])) for host, deployment in deployments.items()}
        if len(set(values.values())) > 1:
            table = ", ".join(f"{host} {value}" for host, value in values.items())
            out.append(fault("", f"{subject} differs", table, "equal on all nodes", "bring the nodes to one version"))
    return errors, warnings


def but_for_our_tables(
    errors: list[Mapping[str, Any]], deployments: Mapping[str, Mapping[str, Any]], stale: Sequence[str]
) -> list[Mapping[str, Any]]:
    """The errors without those about ports that only the collection's own table of another fabric keeps closed.

    stale: hosts with such a table, which this run renews.
    """
    closed = {
        f"firewall of peer {address}" for host in stale for address in deployments[host]["addresses"].get(host, [])
    }
    return [error for error in errors if error["subject"] not in closed]


def check(deployments: Mapping[str, Mapping[str, Any]], reserve_bytes: int) -> tuple[list[Fault], list[Fault]]:
    """Errors and warnings of all hosts of a deployment; reserve_bytes: memory kept for the system on every node."""
    errors: list[Fault] = []
    warnings: list[Fault] = []
    for host, deployment in deployments.items():
        errors += _host_faults(host, deployment["node"])
        errors += _memory_faults(host, deployment, reserve_bytes)
        warnings += _ipc_warning(host, deployment["node"])
    more_errors, more_warnings = _parity(deployments)
    return errors + more_errors, warnings + more_warnings
