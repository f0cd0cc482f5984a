#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run all Molecule scenarios, or those named, and end with one line that counts them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# `default` goes first: it saves the layer with the installed engine from which the others start.
ORDER = ("default", "repair", "faults", "ranks", "fabric", "kernel", "mirror")
# Run by name only, with the reason that is printed where they are left out.
BY_NAME = {
    "engine": "its twenty killed installations were not yet seen to end within the time of a test run",
}


def scenarios() -> list[str]:
    """Names of all scenarios of the checkout, in their order."""
    found = {path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")}
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER) - set(BY_NAME))


def main() -> int:
    """Run them; a scenario that fails does not keep the next from running."""
    if sys.platform != "linux" or os.geteuid() != 0:
        print("scenarios: root on Linux is needed: the nodes live in namespaces of their own", file=sys.stderr)
        return 1
    # The scenario `default` saves its bed under this name before it ends; the others start from it.
    snapshot = f"test-{os.getpid()}"
    env = {**os.environ, "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}", "TEST_SNAPSHOT": snapshot}
    times: dict[str, float] = {}
    failed = []
    for name in sys.argv[1:] or scenarios():
        print(f"\n== molecule test -s {name}", flush=True)
        began = time.monotonic()
        done = subprocess.run([f"{ROOT}/.venv/bin/molecule", "test", "-s", name], cwd=ROOT, env=env, check=False)
        times[name] = time.monotonic() - began
        if done.returncode:
            failed.append(name)
    for name, reason in BY_NAME.items():
        if name not in times:
            print(f"left out {name}: {reason}; `tests/scenarios.py {name}` runs it")
    subprocess.run([f"{ROOT}/testbed/bed", "forget", snapshot], cwd=ROOT, check=False)
    for name, seconds in times.items():
        print(f"{'FAILED' if name in failed else 'passed':8}{name:16}{seconds:7.0f} s")
    print(f"{len(times) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
