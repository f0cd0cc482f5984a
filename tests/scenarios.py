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
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# `default` goes alone and first: it saves the layer with the installed engine from which others start.
FIRST = ("default",)
# Beside each other: those of a lane share the names of a bed, so they go one after the other. Most of their time is
# spent waiting for nodes.
LANES = (("repair", "mirror"), ("engine", "fabric", "kernel"))
# Alone again: they judge how long it takes to serve again.
LAST = ("faults", "ranks")


def scenarios() -> set[str]:
    """Names of all scenarios of the checkout."""
    return {path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")}


def run(names: Iterable[str], env: dict[str, str], times: dict[str, float], failed: list[str], keep: bool) -> None:
    """Run scenarios one after the other; `keep`: show what one said when it has ended, not meanwhile."""
    for name in names:
        print(f"\n== molecule test -s {name}", flush=True)
        began = time.monotonic()
        command = [f"{ROOT}/.venv/bin/molecule", "test", "-s", name]
        output = subprocess.PIPE if keep else None
        done = subprocess.run(command, cwd=ROOT, env=env, check=False, stdout=output, stderr=subprocess.STDOUT)
        times[name] = time.monotonic() - began
        if keep:
            print(f"\n== molecule test -s {name} said:\n{done.stdout.decode(errors='replace')}", flush=True)
        if done.returncode:
            failed.append(name)


def main() -> int:
    """Run them; a scenario that fails does not keep the next from running."""
    if sys.platform != "linux" or os.geteuid() != 0:
        print("scenarios: root on Linux is needed: the nodes live in namespaces of their own", file=sys.stderr)
        return 1
    # The scenario `default` saves its bed under this name before it ends; the others start from it.
    snapshot = f"test-{os.getpid()}"
    env = {**os.environ, "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}", "TEST_SNAPSHOT": snapshot}
    times: dict[str, float] = {}
    failed: list[str] = []
    wanted = set(sys.argv[1:]) or scenarios()
    known = {*FIRST, *LAST, *(name for lane in LANES for name in lane)}
    run([name for name in (*FIRST, *sorted(wanted - known)) if name in wanted], env, times, failed, keep=False)
    lanes = [[name for name in lane if name in wanted] for lane in LANES]
    with ThreadPoolExecutor(len(lanes)) as pool:
        keep = all(lanes)
        for lane in [pool.submit(run, lane, env, times, failed, keep) for lane in lanes]:
            lane.result()
    run([name for name in LAST if name in wanted], env, times, failed, keep=False)
    subprocess.run([f"{ROOT}/testbed/bed", "forget", snapshot], cwd=ROOT, check=False)
    for name, seconds in times.items():
        print(f"{'FAILED' if name in failed else 'passed':8}{name:16}{seconds:7.0f} s")
    print(f"{len(times) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
