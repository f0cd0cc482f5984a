# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Which wheel of a version fits a machine: wheel names and compatibility tags of Linux with glibc."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_ALIASES = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}


class Target(NamedTuple):
    """A machine as wheels see it: CPython's minor version as 3.12, architecture as uname says it, glibc."""

    python: str
    arch: str
    glibc: tuple[int, int] = (2, 39)

    @property
    def marker(self) -> str:
        """The environment marker that this project's locks name a target by."""
        return f"platform_machine == '{self.arch}' and python_version == '{self.python}'"

    def __str__(self) -> str:
        """For messages."""
        return f"Python {self.python} on {self.arch} with glibc {self.glibc[0]}.{self.glibc[1]}"


class WheelName(NamedTuple):
    """The parts of a wheel's file name."""

    name: str
    version: str
    pythons: tuple[str, ...]
    abis: tuple[str, ...]
    platforms: tuple[str, ...]


def normalize(name: str) -> str:
    """A distribution's name in the one spelling that can be compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_wheel_name(filename: str) -> WheelName:
    """Split a wheel's file name; ValueError where it is none."""
    stem, _unused, suffix = filename.rpartition(".")
    parts = stem.split("-")
    if suffix != "whl" or len(parts) not in (5, 6):
        raise ValueError(f"not the name of a wheel: {filename}")
    python, abi, platform = (tuple(part.split(".")) for part in parts[-3:])
    return WheelName(normalize(parts[0]), parts[1], python, abi, platform)


def _platform_rank(tag: str, target: Target) -> int | None:
    """How closely a platform tag fits (higher: newer glibc), or None where it does not."""
    if tag == "any":
        return 0
    match = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", tag)
    if match:
        glibc, arch = (int(match[1]), int(match[2])), match[3]
    else:
        alias, _unused, arch = tag.partition("_")
        if alias == "linux":
            return 1 if arch == target.arch else None
        if alias not in _ALIASES:
            return None
        glibc = _ALIASES[alias]
    if arch != target.arch or glibc > target.glibc:
        return None
    return 2 + glibc[0] * 1000 + glibc[1]


def _python_rank(python: str, abi: str, target: Target) -> int | None:
    """How closely an interpreter tag with its ABI fits (higher: more specific), or None where it does not."""
    minor = int(target.python.split(".")[1])
    own = f"cp3{minor}"
    if python == own and abi in (own, "abi3", "none"):
        return {own: 1003, "abi3": 1002, "none": 1001}[abi]
    older = re.fullmatch(r"(cp|py)3(\d*)", python)
    if not older:
        return None
    if older[1] == "cp":
        return 500 + int(older[2] or 0) if abi == "abi3" and int(older[2] or 0) < minor else None
    return 1 + int(older[2] or 0) if abi == "none" and int(older[2] or 0) <= minor else None


def fit(filename: str, target: Target) -> tuple[int, int] | None:
    """How well a wheel fits a target, as something to compare, or None where it does not run there."""
    wheel = parse_wheel_name(filename)
    ranks = [
        (by_python, by_platform)
        for python in wheel.pythons
        for abi in wheel.abis
        for platform in wheel.platforms
        if (abi == "none" or platform != "any")
        and (by_python := _python_rank(python, abi, target)) is not None
        and (by_platform := _platform_rank(platform, target)) is not None
    ]
    return max(ranks, default=None)


def best(filenames: Iterable[str], target: Target) -> str | None:
    """The wheel to install on a target, or None where none fits. The same answer in whatever order they come."""
    fitting = [(rank, name) for name in filenames if (rank := fit(name, target)) is not None]
    return max(fitting)[1] if fitting else None
