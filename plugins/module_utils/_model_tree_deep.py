# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The sums of a model's files, on all cores: hashlib lets go of the interpreter as it works, so threads are enough."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

_BLOCK: Final = 8 << 20


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def file_sum(path: Path, moved: Callable[[int], None] = lambda _count: None) -> str:
    """sha256 of a file; `moved` hears of every block."""
    total = hashlib.sha256()
    buffer = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            total.update(buffer[:count])
            moved(count)
    return total.hexdigest()


def settled_sum(path: Path, moved: Callable[[int], None] = lambda _count: None) -> tuple[str, list[int]]:
    """sha256 of a file, and size, time and inode that the sum is true for."""
    before = path.stat()
    value = file_sum(path, moved)
    after = path.stat()
    stamps = [[s.st_size, s.st_mtime_ns, s.st_ino] for s in (before, after)]
    # A file that changed while it was read has no sum.
    return (value if stamps[0] == stamps[1] else "changed while it was read"), stamps[1]


def sums(
    root: Path, names: Iterable[str], moved: Callable[[int], None] = lambda _count: None, workers: int = 0
) -> Iterator[tuple[str, str | OSError]]:
    """Sum of each file, in the order given; an error stands in its place."""

    def one(name: str) -> str | OSError:
        try:
            return file_sum(root / name, moved)
        except OSError as error:
            return error

    ordered = list(names)
    with ThreadPoolExecutor(workers or cores()) as pool:
        yield from zip(ordered, pool.map(one, ordered), strict=True)
