# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What stands in the way of an engine on a node, what differs between nodes, and what is not as it should be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._engine_lock import LockError, Wheel, read, select
from ._engine_tags import Target
from ._report import Fault, fault


def version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, to be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def toolkit_lacks(row: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether the CUDA toolkit that a unit finds is missing or too old for the variant."""
    least, nvcc = str(row.get("toolkit_min", "")), str(node.get("nvcc", ""))
    return bool(least) and (not nvcc or version(nvcc) < version(least))


def _unlike(wheels: Sequence[Wheel], packages: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Packages of a release, by its manifest, that are not as the lock says; none where there is no release yet."""
    have = {name: str(entry["version"]) for name, entry in packages.items() if name}
    want = {wheel.package: wheel.version for wheel in wheels}
    names = sorted(have.keys() | want.keys()) if have else []
    return [
        f"{name}: {have.get(name, 'absent')}, by the lock {want.get(name, 'none')}"
        for name in names
        if have.get(name) != want.get(name)
    ]


def _lock_faults(host: str, node: Mapping[str, Any], locks: Sequence[Path], state: Mapping[str, Any]) -> list[Fault]:
    """Whether the lock serves this node, and the disk takes what it names."""
    glibc = state["glibc"]
    target = Target(node["python"]["minor"], node["arch"], (glibc[0], glibc[1]))
    try:
        wheels = select(read(locks), target, locks[0].name)
    except LockError as exc:
        return [
            fault(host, "lock", str(exc), "a wheel of every package", "another engine_variant, or playbooks/lock.yml")
        ]
    unlike = _unlike(wheels, state.get("packages", {}))
    if unlike:
        cure = "something else made this release; remove it on the node and run again"
        return [fault(host, "packages of the release", "\n".join(unlike), "what the lock says, and nothing else", cure)]
    # Unpacked, an environment takes more than its wheels; how much exactly is known when they are there.
    need, free = 2 * sum(wheel.size for wheel in wheels), int(state["disk_free"])
    if state["state"] in ("absent", "partial") and free < need:
        expected = f"{need / 1e9:.1f} GB for the wheels and the environment"
        return [fault(host, "disk", f"{free / 1e9:.1f} GB free", expected, "make room, or lower engine_keep")]
    return []


def _gpu_faults(host: str, row: Mapping[str, Any], node: Mapping[str, Any], toolkit_comes: bool) -> list[Fault]:
    """Whether driver and CUDA toolkit are there, as a unit finds them, and new enough."""
    errors = []
    least = str(row.get("driver_min", ""))
    drivers = sorted({gpu["driver"] for gpu in node.get("gpus", [])})
    for driver in (drivers or [""]) if least else []:
        if not driver or version(driver) < version(least):
            found = driver or "no GPU that nvidia-smi sees"
            cure = "install or update the driver; this collection never does"
            errors.append(fault(host, "NVIDIA driver", found, f"{least} or newer", cure))
    if toolkit_lacks(row, node) and not toolkit_comes:
        subject = "CUDA toolkit, as a unit finds nvcc"
        expected = f"{row['toolkit_min']} or newer: kernels are compiled at the first forward"
        cure = "install it below /usr/local/cuda, or let the role do so with engine_cuda_install: true"
        errors.append(fault(host, subject, str(node.get("nvcc", "")) or "none", expected, cure))
    return errors


def node_faults(
    host: str,
    variant: str,
    row: Mapping[str, Any],
    node: Mapping[str, Any],
    locks: Sequence[Path],
    state: Mapping[str, Any],
    toolkit_comes: bool = False,
) -> list[Fault]:
    """Errors of one node, before anything is changed. locks: empty where an environment is adopted or none is there."""
    errors: list[Fault] = []
    arch, python = node["arch"], node["python"]["minor"]
    if arch not in row["architectures"]:
        cure = f"choose another variant than {variant}"
        errors.append(fault(host, "architecture", arch, " or ".join(row["architectures"]), cure))
    if version(python) < (3, 12):
        errors.append(fault(host, "Python", python, "3.12 or newer", "give the host an interpreter of that version"))
    elif locks and not errors:
        errors += _lock_faults(host, node, locks, state)
    return errors + _gpu_faults(host, row, node, toolkit_comes)


def controller(todo: Sequence[str], absent: Sequence[str]) -> list[Fault]:
    """Programs that the controller lacks, where wheels are to be brought from it. todo: steps of the plan."""
    if not set(todo) & {"lock", "build", "repair"}:
        return []
    cure = "install it on the machine that runs ansible-playbook, or set engine_wheelhouse: head"
    return [
        fault("", f"{name} on the controller", "not installed", "installed: it brings the wheels to the head", cure)
        for name in absent
    ]


def validation(row: Mapping[str, Any], expected: Mapping[str, str]) -> list[Fault]:
    """A warning where the lock has another vLLM than the one that this collection was tried with."""
    validated, vllm = str(row.get("validated", "")), str(expected.get("vllm", "")).partition("+")[0]
    if not validated or not vllm or vllm == validated:
        return []
    return [fault("", "vLLM", f"{vllm}: not validated", validated, "nothing, if this version is wanted")]


def nccl(host: str, card: str, have: str) -> tuple[list[Fault], list[Fault]]:
    """Whether the NCCL that a rank loads is the one that the card's rule on enforce_eager reckons with."""
    if not card or not have or version(card) == version(have):
        return [], []
    cure = "set engine_nccl to the version that is wanted; both follow it"
    item = fault(host, "NCCL", have, f"{card}, which the card reckons with", cure)
    return ([item], []) if version(have) < version(card) else ([], [item])


def _compared(node: Mapping[str, Any]) -> dict[str, str]:
    """What is compared between nodes, by subject."""
    return {
        "NVIDIA driver": ", ".join(sorted({gpu["driver"] for gpu in node["gpus"]})) or "none",
        "kernel": str(node["kernel"]),
        "CUDA toolkit": str(node["nvcc"]) or "none",
        "operating system": str(node["os"].get("pretty_name", "")),
        "Python": str(node["python"]["version"]),
        "Python's minor version": str(node["python"]["minor"]),
        "architecture": str(node["arch"]),
    }


# One lock and one environment serve all nodes only where these are equal.
_NEEDED_EQUAL = ("Python's minor version", "architecture")


def parity(nodes: Mapping[str, Mapping[str, Any]]) -> tuple[list[Fault], list[Fault]]:
    """What differs between nodes: an error where the engine needs it equal, a warning otherwise, with all values."""
    errors: list[Fault] = []
    warnings: list[Fault] = []
    compared = {host: _compared(node) for host, node in nodes.items()}
    for subject in next(iter(compared.values()), {}):
        values = {host: found[subject] for host, found in compared.items()}
        if len(set(values.values())) > 1:
            table = "\n".join(f"{host}: {value}" for host, value in values.items())
            item = fault("", subject, table, "the same on all nodes", "bring the nodes to the same version")
            (errors if subject in _NEEDED_EQUAL else warnings).append(item)
    return errors, warnings


def to_report(host: str, planned: Mapping[str, Any]) -> list[Fault]:
    """What is not as it should be in a release that is there: it is put in order, but not without a word."""
    grouped: dict[str, list[str]] = {}
    for item in planned["node"]["differences"]:
        grouped.setdefault(item["package"] or "(no package)", []).append(f"{item['path']}: {item['problem']}")
    count = planned["node"].get("difference_count", 0)
    found = [
        fault(
            host,
            f"package {package} in release {planned['id']}",
            "\n".join([*lines[:10], *([f"and {len(lines) - 10} more"] if len(lines) > 10 else [])]),
            "as the manifest says",
            "verified anew in this run; an adopted environment is never changed"
            if planned.get("adopted")
            else f"put back out of its wheel in this run ({count} files in all)",
        )
        for package, lines in sorted(grouped.items())
    ]
    if planned["node"]["state"] == "ready" and "patch" in planned["todo"]:
        names = ", ".join(sorted(planned["patches"]))
        have = ", ".join(sorted(planned["node"]["patches"])) or "none"
        found.append(fault(host, f"patches of release {planned['id']}", have, names, "patched in this run"))
    return found
