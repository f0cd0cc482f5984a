# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The words in which a model folder is described: files, problems, the tree as a whole."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypedDict

from ._safetensors import Header

CONFIG: Final = "config.json"
INDEX: Final = "model.safetensors.index.json"
SHARD: Final = ".safetensors"
# One JSON file of a checkpoint: indexes of a hundred thousand tensors are below 20 MB.
MAX_JSON: Final = 256 << 20
# model-00001-of-00024.safetensors
NUMBERED: Final = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5,9})-of-(?P<count>\d{5,9})\.safetensors$")


class Problem(TypedDict):
    """One thing that keeps a folder from being complete."""

    file: str
    kind: str
    found: str
    expected: str


def problem(file: str, kind: str, found: str, expected: str) -> Problem:
    """A problem; found and expected are sentence fragments."""
    return Problem(file=file, kind=kind, found=found, expected=expected)


@dataclass(frozen=True, slots=True)
class Entry:
    """A regular file, links resolved."""

    size: int
    mtime_ns: int
    ino: int
    linked: bool


@dataclass(slots=True)
class Tree:
    """What was found."""

    path: str
    files: dict[str, Entry] = field(default_factory=dict)
    headers: dict[str, Header] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(entry.size for entry in self.files.values())

    @property
    def shards(self) -> int:
        """How many safetensors files there are."""
        return sum(name.endswith(SHARD) for name in self.files)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; raises ValueError with a fragment that says what it is instead."""
    try:
        if path.stat().st_size > MAX_JSON:
            raise ValueError(f"more than {MAX_JSON} bytes")
        value = json.loads(path.read_bytes().decode("utf-8"))
    except (OSError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__}")
    return value
