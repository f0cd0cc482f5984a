#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a release: quick and deep on all cores, against a plain sha256 pass on one thread and against `sha256sum`.

Usage: engine_manifest.py RELEASE, on the machine that holds it; a release with a manifest or any folder of files. Exits
with 1 where two or more cores are not at least 1.5 times as fast as one thread. Files are read once beforehand, so that
what is measured is the work and not the first touch of the disk; the best of three counts, since what else a machine
does only ever adds to it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "collections")]

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_state, _manifest  # noqa: E402

LEAST_GAIN = 1.5
TURNS = 3


def plain(root: Path, paths: list[str]) -> dict[str, str]:
    """One file after the other, on one thread."""
    sums = {}
    for path in paths:
        with (root / path).open("rb") as handle:
            sums[path] = hashlib.file_digest(handle, "sha256").hexdigest()
    return sums


def coreutils(root: Path, paths: list[str]) -> None:
    """What a person would type."""
    names = "\0".join(paths).encode()
    subprocess.run(["xargs", "-0", "sha256sum"], input=names, cwd=root, stdout=subprocess.DEVNULL, check=True)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def main() -> int:
    """Measure and print a table."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = Path(sys.argv[1]).resolve()
    sizes = {path: item.size for path, item in _manifest.scan(root).items() if not item.link}
    paths, total, cores = list(sizes), sum(sizes.values()), len(os.sched_getaffinity(0))
    coreutils(root, paths)
    one = many = alone = float("inf")
    for _turn in range(TURNS):
        seconds, sums = timed(lambda: plain(root, paths))
        one = min(one, seconds)
        seconds, same = timed(lambda: _manifest.hash_files(root, sizes))
        many = min(many, seconds)
        if same != sums:
            print("the sums differ", file=sys.stderr)
            return 1
        alone = min(alone, timed(lambda: coreutils(root, paths))[0])
    rows = [("plain pass, one thread", one), ("sha256sum", alone), (f"deep check, {cores} cores", many)]
    if (root / _manifest.NAME).exists():
        known = _manifest.load(root / _manifest.NAME)
        patched = _engine_state.patched_files(_engine_state.patches_of(root))
        quick, found = timed(lambda: _manifest.compare(root, known, patched))
        rows.append((f"quick check ({len(found)} differences)", quick))
    print(f"{len(paths)} files, {total / 1e9:.2f} GB")
    for name, seconds in rows:
        print(f"{name:<34}{seconds:7.2f} s{total / seconds / 1e9:8.2f} GB/s")
    return 0 if cores < 2 or one / many >= LEAST_GAIN else 1


if __name__ == "__main__":
    sys.exit(main())
