# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Drop the page cache of files without root, and say how much of it there was.

On unified memory cached pages of the weights count as used, and an engine that starts sees too little (C61).
posix_fadvise(DONTNEED) gives clean pages back; dirty ones are written first. Pages that a process has mapped stay.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_PAGE = mmap.PAGESIZE
# Number of cachestat(2) on every architecture; kernels from 6.5 on have it.
_SYS_CACHESTAT = 451
_libc = ctypes.CDLL(None, use_errno=True)


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Stat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted")]


def _cachestat(descriptor: int) -> int | None:
    whole, found = _Range(0, 0), _Stat()
    answer = _libc.syscall(_SYS_CACHESTAT, descriptor, ctypes.byref(whole), ctypes.byref(found), 0)
    return int(found.cache) * _PAGE if answer == 0 else None


def _mincore(descriptor: int, size: int) -> int:
    """Count resident pages by mincore(2), which older kernels have too; 0 for a file that is not ours to ask about."""
    mapped = _libc.mmap
    mapped.restype = ctypes.c_void_p
    mapped.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong]
    address = mapped(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return 0
    try:
        pages = (ctypes.c_ubyte * ((size + _PAGE - 1) // _PAGE))()
        if _libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages):
            return 0
        return sum(value & 1 for value in bytes(pages)) * _PAGE
    finally:
        _libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))


def cached_bytes(path: str | os.PathLike[str]) -> int:
    """Bytes of a file that are in the page cache."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        size = os.fstat(descriptor).st_size
        # On an overlay the first counts the layer's own pages, of which there are none.
        return _cachestat(descriptor) or (_mincore(descriptor, size) if size else 0)
    finally:
        os.close(descriptor)


def drop_file(path: str | os.PathLike[str]) -> None:
    """Give the cached pages of one file back; dirty ones are written to the disk first."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def files_of(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """Every regular file at or below the paths, links followed, each once; what is not there is left out."""
    seen: set[tuple[int, int]] = set()
    for root in map(Path, paths):
        found = (Path(folder) / name for folder, _unused, names in os.walk(root, followlinks=False) for name in names)
        for path in [root] if root.is_file() else found:
            try:
                status = path.stat()
            except OSError:
                continue
            if path.is_file() and (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield path


def drop_tree(*paths: str | os.PathLike[str]) -> dict[str, int]:
    """Drop the cache of all files at or below the paths.

    Returns files, bytes (their size), cached_before, cached_after, and in skipped the files that may not be read.
    """
    result = {"files": 0, "bytes": 0, "cached_before": 0, "cached_after": 0, "skipped": 0}
    for path in files_of(paths):
        try:
            before = cached_bytes(path)
            # Also where nothing is counted: a file of somebody else is not told of by every kernel.
            drop_file(path)
            result["cached_after"] += cached_bytes(path)
            result["cached_before"] += before
            result["bytes"] += path.stat().st_size
            result["files"] += 1
        except OSError:
            result["skipped"] += 1
    return result
