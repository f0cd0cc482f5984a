# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What release a node should have, and what is to be done for that.

Works on a row of the table of variants, the bytes of locks, and what was read on the nodes; writes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._engine_build import environment
from ._engine_lock import Lock, read, release_id

# In this order they are done.
STEPS = ("lock", "packages", "toolkit", "build", "adopt", "repair", "patch", "switch")


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


def steps(
    planned: Mapping[str, Any], state: Mapping[str, Any], patches: Mapping[str, str], adopted: bool, toolkit: bool
) -> list[str]:
    """What has to be done on a node. patches: sum of each patch file that the release must have; toolkit: whether
    the CUDA toolkit is to be installed."""
    if not planned["id"]:
        return ["lock"]
    todo = []
    if state["missing_packages"]:
        todo.append("packages")
    if toolkit:
        todo.append("toolkit")
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


_WORDS = {
    "lock": "resolve a lock of {variant} and keep it beside the inventory",
    "packages": "install {missing} from the distribution",
    "toolkit": "install the CUDA toolkit {toolkit}",
    "build": "build release {id}: {packages} packages, vLLM {vllm}, torch {torch} for CUDA {torch_cuda}, NCCL {nccl}",
    "adopt": "verify {path} and use it as it is",
    "repair": "put back {count} files of release {id}",
    "patch": "patch release {id}: {patches}",
    "switch": "make {id} current in place of {current}",
}


def summary(host: str, planned: Mapping[str, Any]) -> list[str]:
    """What is to be done on a host, in words."""
    values = {
        "variant": planned["variant"],
        "missing": ", ".join(planned["node"]["missing_packages"]),
        "toolkit": planned["row"].get("toolkit_package", ""),
        "id": planned["id"],
        "packages": planned["packages"],
        "path": planned["path"],
        "count": planned["node"].get("difference_count", 0),
        "patches": ", ".join(sorted(planned["patches"])),
        "current": Path(planned["node"]["current"]).name or "none",
        **{key: planned["expected"].get(key, "") for key in ("vllm", "torch", "torch_cuda", "nccl")},
    }
    return [f"{host}: {_WORDS[step].format(**values)}" for step in planned["todo"]]
