# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What release a node should have, what is to be done for that, and what stands in the way.

Pure: works on a row of the table of variants, the bytes of locks, and what was read on the nodes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._engine_build import environment
from ._engine_lock import Lock, LockError, read, release_id, select
from ._engine_tags import Target
from ._report import Fault, fault

# In this order they are done.
STEPS = ("lock", "packages", "build", "adopt", "repair", "patch", "switch")


def lock_name(variant: str) -> str:
    """The file name of a variant's lock."""
    return f"pylock.{variant}.toml"


def nccl_lock_name(variant: str, version: str) -> str:
    """The file name of the lock that replaces a variant's NCCL."""
    return f"pylock.{variant}-nccl-{version.replace('.', '-')}.toml"


def lock_names(variant: str, nccl: str) -> list[str]:
    """The names of the lock files that make up a variant's lock."""
    return [lock_name(variant), *([nccl_lock_name(variant, nccl)] if nccl else [])]


def alternatives(
    variant: str, variants: Mapping[str, Mapping[str, Any]], arch: str, gpus: bool, folders: Sequence[Path]
) -> list[str]:
    """Other variants that this kind of node could have and whose lock is there."""
    return sorted(
        name
        for name, row in variants.items()
        if name != variant
        and arch in row["architectures"]
        and (gpus or not row.get("driver_min"))
        and bool(row.get("driver_min")) == bool(variants[variant].get("driver_min"))
        and not find_locks(name, "", folders)[1]
    )


def find_locks(variant: str, nccl: str, folders: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The lock files of a variant, each from the first folder that has it, and the names of those that none has."""
    names = lock_names(variant, nccl)
    found, absent = [], []
    for name in names:
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            absent.append(name)
        else:
            found.append(path)
    return found, absent


def find_patches(names: Sequence[str], folders: Sequence[Path]) -> tuple[dict[str, Path], list[str]]:
    """The files of patches by name, each from the first folder that has it, and the names that none has."""
    found: dict[str, Path] = {}
    for name in names:
        path = next((folder / f"{name}.toml" for folder in folders if (folder / f"{name}.toml").is_file()), None)
        if path is not None:
            found[name] = path
    return found, [name for name in names if name not in found]


def version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, to be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def plan(
    root: str, variant: str, row: Mapping[str, Any], locks: Sequence[Path], python: str, adopt: str = ""
) -> dict[str, Any]:
    """Name and place of the release, and what its checks expect, as far as the lock is known."""
    if adopt:
        name = "adopted-" + hashlib.sha256(adopt.encode()).hexdigest()[:8]
        expected = {"torch_cuda": str(row.get("torch_cuda", ""))}
        return {"id": name, "path": adopt, "environment": environment(Path(adopt)), "expected": expected, "packages": 0}
    if not locks:
        return {"id": "", "path": "", "environment": {}, "expected": {}, "packages": 0}
    lock = read(locks)
    name = release_id(lock.sha256, variant, python)
    path = f"{root}/releases/{name}"
    return {
        "id": name,
        "path": path,
        "environment": environment(Path(path)),
        "expected": expectations(row, lock),
        "packages": len(lock.packages),
    }


def expectations(row: Mapping[str, Any], lock: Lock) -> dict[str, str]:
    """The versions that an environment made from a lock must say of itself."""

    def locked(pattern: str) -> str:
        return next((entry["version"] for name, entry in lock.packages.items() if re.fullmatch(pattern, name)), "")

    return {
        "vllm": locked("vllm"),
        "torch": locked("torch").partition("+")[0],
        "torch_cuda": str(row.get("torch_cuda", "")),
        "ray": locked("ray"),
        "nccl": locked(r"nvidia-nccl-cu\d+"),
    }


def steps(planned: Mapping[str, Any], state: Mapping[str, Any], patches: Mapping[str, str], adopted: bool) -> list[str]:
    """What has to be done on a node. patches: sum of each patch file that the release must have."""
    if not planned["id"]:
        return ["lock"]
    todo = []
    if state["missing_libraries"]:
        todo.append("packages")
    if adopted and state["state"] != "ready":
        todo.append("adopt")
    elif state["state"] in ("absent", "partial"):
        todo.append("build")
    elif state["state"] == "damaged":
        todo.append("repair")
    # A patch that nobody asks for any more stays: taking it back is done on purpose, with state absent.
    have = {name: record.get("patch_sha256") for name, record in state["patches"].items()}
    damaged = {item["path"] for item in state["differences"]}
    wanting = any(have.get(name) != sha256 for name, sha256 in patches.items())
    if adopted:
        todo += ["adopt"] if wanting and "adopt" not in todo else []
    elif wanting or any(record.get("file") in damaged for record in state["patches"].values()):
        todo.append("patch")
    if state["current"] != planned["path"]:
        todo.append("switch")
    return todo


def node_faults(
    host: str,
    variant: str,
    row: Mapping[str, Any],
    node: Mapping[str, Any],
    locks: Sequence[Path],
    glibc: Sequence[int],
) -> tuple[list[Fault], list[Fault]]:
    """Errors and warnings about one node, before anything is changed."""
    errors: list[Fault] = []
    warnings: list[Fault] = []
    arch, python = node["arch"], node["python"]["minor"]
    if arch not in row["architectures"]:
        errors.append(
            fault(
                host, "architecture", arch, " or ".join(row["architectures"]), f"choose another variant than {variant}"
            )
        )
    if version(python) < (3, 12):
        errors.append(fault(host, "Python", python, "3.12 or newer", "give the host an interpreter of that version"))
    elif locks:
        try:
            select(read(locks), Target(python, arch, (glibc[0], glibc[1])), locks[0].name)
        except LockError as exc:
            errors.append(
                fault(
                    host, "lock", str(exc), "a wheel of every package", "another engine_variant, or playbooks/lock.yml"
                )
            )
    driver_min, toolkit_min = str(row.get("driver_min", "")), str(row.get("toolkit_min", ""))
    drivers = sorted({gpu["driver"] for gpu in node.get("gpus", [])})
    if driver_min and not drivers:
        errors.append(
            fault(host, "NVIDIA driver", "no GPU seen by nvidia-smi", f"{driver_min} or newer", "install the driver")
        )
    for driver in drivers if driver_min else []:
        if version(driver) < version(driver_min):
            errors.append(
                fault(host, "NVIDIA driver", driver, f"{driver_min} or newer", "update it; this collection never does")
            )
    nvcc = str(node.get("nvcc", ""))
    if toolkit_min and (not nvcc or version(nvcc) < version(toolkit_min)):
        errors.append(
            fault(
                host,
                "CUDA toolkit (nvcc in the units' PATH)",
                nvcc or "none",
                f"{toolkit_min} or newer: kernels are compiled at the first forward",
                "install it, or let the role do so with engine_cuda_install: true",
            )
        )
    return errors, warnings


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
