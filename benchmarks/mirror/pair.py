#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror of the role against the reference command, alternating on the same tree between two nodes of a bed.

    BED_DIR=... python benchmarks/mirror/pair.py [--rounds 3] [--bytes 2160000000]

The reference is one `rsync -a --partial --inplace` over ssh with aes128-gcm. It only moves; the mirror moves, proves
every file by its sum and waits for the disk, so both are timed twice: the moving alone, and until the bytes are proved
and on the disk (for the reference: sha256sum and sync after it). CPU seconds are those of both nodes together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from testbed.bedlib.groups import folders
from tests.mirror.mirror_bed import NAME, Nodes

KEY = ".ssh/mirror_bench"
CIPHER = "aes128-gcm@openssh.com"


def cpu_seconds(nodes: Nodes) -> float:
    """CPU time of all processes of all nodes since they were made."""
    total = 0.0
    for number in nodes.bed.numbers():
        for folder in folders(nodes.bed, number):
            stat = folder / "cpu.stat"
            if stat.exists():
                total += int(stat.read_text().split()[1]) / 1e6
                break
    return total


def give_key(nodes: Nodes) -> None:
    """The worker may log in to the head over the fabric, for the reference."""
    head, worker = nodes.hosts[0], nodes.hosts[1]
    nodes.run(worker, f"mkdir -p .ssh && test -f {KEY} || ssh-keygen -q -t ed25519 -N '' -f {KEY}")
    public = nodes.run(worker, f"cat {KEY}.pub")
    nodes.run(
        head, f"mkdir -p .ssh && grep -qF '{public}' .ssh/authorized_keys || echo '{public}' >> .ssh/authorized_keys"
    )


def reference(nodes: Nodes) -> dict[str, float]:
    """The reference command, from the worker, then proof and disk."""
    head, worker = nodes.addresses()[nodes.hosts[0]][0], nodes.hosts[1]
    nodes.run(worker, "rm -rf models/reference && mkdir -p models/reference && sync")
    ssh = f"ssh -c {CIPHER} -i {KEY} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    move = f"rsync -a --partial --inplace -e '{ssh}' {head}:models/{NAME}/ models/reference/"
    before = cpu_seconds(nodes)
    timed = (
        f"a=$(date +%s.%N); {move}; b=$(date +%s.%N); "
        "find models/reference -type f -print0 | xargs -0 sha256sum > /dev/null; sync; c=$(date +%s.%N); echo $a $b $c"
    )
    begun, moved, proved = (float(word) for word in nodes.run(worker, timed).split())
    cpu = cpu_seconds(nodes) - before
    nodes.run(worker, "rm -rf models/reference")
    return {"moved": moved - begun, "proved": proved - begun, "cpu": cpu}


class CpuClock(threading.Thread):
    """CPU seconds of the nodes over time, so that those of one part of a play can be told."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__(daemon=True)
        self.nodes, self.marks, self.ended = nodes, [(time.time(), cpu_seconds(nodes))], threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            self.marks.append((time.time(), cpu_seconds(self.nodes)))

    def between(self, begun: float, ended: float) -> float:
        inside = [cpu for at, cpu in self.marks if begun <= at <= ended]
        return inside[-1] - inside[0]


def ours(nodes: Nodes) -> dict[str, float]:
    """The role's mirror; time and CPU are those of the job, without the play around it."""
    worker = nodes.hosts[1]
    nodes.run(worker, f"rm -rf models/{NAME} models/.dgx-spark-vllm && sync")
    clock = CpuClock(nodes)
    clock.start()
    nodes.play_through()
    clock.ended.set()
    clock.join()
    status = json.loads(nodes.run(worker, "cat models/.dgx-spark-vllm/.jobs/pull.json"))
    result = status["result"]
    cpu = clock.between(status["started"], status["started"] + result["seconds"])
    return {"moved": result["moving_s"], "proved": result["seconds"], "cpu": cpu}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=2_160_000_000)
    options = parser.parse_args()
    nodes = Nodes.found(options.bytes)
    nodes.play_through()
    give_key(nodes)
    runs: dict[str, list[dict[str, float]]] = {"reference": [], "ours": []}
    for number in range(options.rounds):
        for name, run in (("reference", reference), ("ours", ours)):
            # The sender's pages are warm for both: what is compared is the way, not the disk.
            nodes.run(nodes.hosts[0], f"cat models/{NAME}/* > /dev/null")
            runs[name].append(run(nodes))
            print(json.dumps({"round": number + 1, "way": name, **{k: round(v, 2) for k, v in runs[name][-1].items()}}))
            time.sleep(1)
    medians = {n: {k: statistics.median(r[k] for r in rows) for k in rows[0]} for n, rows in runs.items()}
    for name, found in medians.items():
        rates = {key: options.bytes / found[key] / 1e9 for key in ("moved", "proved")}
        print(
            f"{name:10} moved {found['moved']:6.2f} s ({rates['moved']:.2f} GB/s)   "
            f"proved and on disk {found['proved']:6.2f} s ({rates['proved']:.2f} GB/s)   CPU {found['cpu']:6.2f} s"
        )
    ratio = {key: medians["reference"][key] / medians["ours"][key] for key in ("moved", "proved", "cpu")}
    print("reference / ours: " + ", ".join(f"{key} {value:.2f}" for key, value in ratio.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
