# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random sequences of plays, killed plays, card switches and faults: a run of the site reaches the declared state.

`python -m testbed.faults.chaos [--bed DIR] [--seeds 1-100] [--steps N]` runs them by hand. A seed tells the sequence.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .catalog import FAULTS
from .nodes import Cluster, FaultError, wait_for

CARDS = ("dgx-spark--Laguna-Chain-Tiny", "dgx-spark--Laguna-Chain-Tiny-K3", "dgx-spark--Laguna-Chain-Tiny-K0")
# Faults that need no time of their own; what they hit depends on what the step before has left.
SUDDEN = ("server", "core", "rank-worker", "rank-head", "raylet-worker", "raylet-head", "gcs", "cable-5", "logout",
          "reboot-worker", "reboot-head", "reboot-both", "power-worker", "power-head", "gid-moved",
          "disk-full")  # fmt: skip
BOOT_S = 180


@dataclass(frozen=True)
class Step:
    """One thing that happens to a deployment."""

    name: str
    act: Callable[[Cluster], object]


def _fault(name: str) -> Step:
    fault = next(fault for fault in FAULTS if fault.name == name)

    def act(cluster: Cluster) -> None:
        # What it is to hit may not run now: the step before has seen to that.
        with contextlib.suppress(FaultError):
            fault.put_on(cluster)
            # A fault has a length; there is no condition to wait for.
            time.sleep(fault.lasts_s)
        fault.take_off(cluster)

    return Step(name, act)


def sequence(seed: int, steps: int) -> list[Step]:
    """The steps of a seed, the same on every machine."""
    dice = random.Random(seed)
    found: list[Step] = []
    for _ in range(steps):
        kind = dice.choice(("site", "killed", "switch", "stop", "fault", "fault", "fault"))
        if kind == "site":
            found.append(Step("site", lambda cluster: cluster.play("site.yml")))
        elif kind == "killed":
            after = dice.uniform(2, 40)
            found.append(Step(f"site killed after {after:.0f} s", _killed(after)))
        elif kind == "switch":
            card = dice.choice(CARDS)
            found.append(Step(f"switch to {card}", _switch(card)))
        elif kind == "stop":
            found.append(Step("stop", lambda cluster: cluster.play("playbooks/stop.yml")))
        else:
            found.append(_fault(dice.choice(SUDDEN)))
    return found


def _killed(after: float) -> Callable[[Cluster], object]:
    return lambda cluster: cluster.play("site.yml", kill_after_s=after)


def _switch(card: str) -> Callable[[Cluster], object]:
    return lambda cluster: cluster.play("playbooks/switch.yml", "-e", f"model_card={card}")


def run(cluster: Cluster, steps: list[Step], declared: str) -> None:
    """All steps, one upon the other without a wait, and then one run of the site. Raises FaultError."""
    for step in steps:
        print(f"  {step.name}", flush=True)
        wait_for(cluster.reachable, BOOT_S, "all nodes take logins")
        step.act(cluster)
    wait_for(cluster.reachable, BOOT_S, "all nodes take logins")
    done = cluster.play("site.yml")
    if done.status:
        raise FaultError(f"site.yml did not end well:\n{done.output[-4000:]}")
    told = " -> ".join(step.name for step in steps)
    if complaint := in_declared_state(cluster, declared):
        raise FaultError(f"after {told} and site.yml: {complaint}")
    again = cluster.play("site.yml")
    if again.status or again.changed:
        raise FaultError(f"after {told} a second run changed {again.changed}:\n{again.output[-4000:]}")


def in_declared_state(cluster: Cluster, declared: str) -> str:
    """Empty where the declared card is served by one engine, on one release, and nothing stands still."""
    found = json.loads(cluster.head.run(".local/share/dgx-spark-vllm/bin/vllm-node status --json", timeout=60))
    if found["reason"] or found["card"] != declared:
        return f"card {found['card']}, {found['reason'] or 'serving'}; declared is {declared}"
    if bad := {what: count for what, count in cluster.engines().items() if count != 1}:
        return f"not one engine: {bad}"
    releases = {node.run("readlink .local/share/dgx-spark-vllm/current").strip() for node in cluster.nodes}
    return "" if len(releases) == 1 else f"nodes are on different releases: {releases}"


def main() -> int:
    """Exit code 0 where every sequence ended in the declared state."""
    parser = argparse.ArgumentParser(prog="testbed.faults.chaos", description=__doc__)
    parser.add_argument("--bed", default=os.environ.get("BED_DIR", ".bed"), help="folder of the bed")
    parser.add_argument("--seeds", default="1-100", help="first and last seed")
    parser.add_argument("--steps", type=int, default=3, help="steps of a sequence")
    parser.add_argument("--site-vars", help="file with variables that every play gets")
    options = parser.parse_args()
    cluster = Cluster(Path(options.bed).resolve(), ("-e", f"@{options.site_vars}") if options.site_vars else ())
    first, _, last = options.seeds.partition("-")
    bad = []
    for seed in range(int(first), int(last or first) + 1):
        began = time.monotonic()
        print(f"seed {seed}", flush=True)
        try:
            run(cluster, sequence(seed, options.steps), CARDS[0])
        except FaultError as err:
            bad.append(seed)
            print(f"  {err}", flush=True)
        print(f"  {'FAILED' if seed in bad else 'ok'} after {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(bad)} failed" + (f": seeds {bad}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
