#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run mypy --strict on the collection under its full name and on the tools beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = "collections/ansible_collections/dgx_spark/vllm"
# Scripts with a `main` each would be one module twice, so each group is a run of its own.
GROUPS = (
    [f"{COLLECTION}/plugins"],
    ["testbed/bedlib"],
    ["testbed/models"],
    ["testbed/vm"],
    ["testbed/demo.py"],
    ["inventories/local/bed.py"],
    ["tests/bed"],
    ["tests/testbed"],
    *([str(path)] for path in sorted((ROOT / "tests").glob("*.py"))),
    *([str(path)] for path in sorted((ROOT / "benchmarks").rglob("*.py"))),
)


def main() -> int:
    """Check every group; non-zero where one of them failed."""
    failed = 0
    for group in GROUPS:
        paths = [path for path in group if (ROOT / path).exists()]
        if paths:
            done = subprocess.run([sys.executable, "-m", "mypy", *paths], cwd=ROOT, check=False)
            failed |= done.returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
