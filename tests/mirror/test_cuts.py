# SPDX-License-Identifier: GPL-3.0-or-later
"""A mirror of 24 shards on real nodes, cut at random points: it always ends equal, and little moves twice.

Runs on the bed that BED_DIR names (`testbed/bed up`); MIRROR_CUTS says how many points (20), MIRROR_SEED which ones.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
import uuid

import pytest

from tests.mirror.mirror_bed import NAME, Nodes, needs_bed

pytest_plugins = ("tests.mirror.fixtures",)
pytestmark = needs_bed
CUTS = int(os.environ.get("MIRROR_CUTS", "20"))
SEED = int(os.environ.get("MIRROR_SEED", "1"))
WAYS = ("cable", "power of the receiver", "power of the head", "the play")
# So slow that a cut falls into the middle, so fast that twenty of them do not take an hour.
BANDWIDTH = 300_000_000


def _wait_for_bytes(nodes: Nodes, host: str, wanted: int, process: subprocess.Popen[str]) -> int:
    """Until so much has arrived, or the play has ended before."""
    while process.poll() is None:
        if (here := nodes.arrived(host)) >= wanted:
            return here
        time.sleep(0.1)
    raise AssertionError(f"the play ended before {wanted} bytes had arrived: {process.communicate()[0][-3000:]}")


@pytest.mark.parametrize("number", range(CUTS))
def test_cut_at_a_random_point(nodes: Nodes, whole: dict[str, str], number: int) -> None:
    chance = random.Random(SEED * 1000 + number)
    way = WAYS[number % len(WAYS)]
    head, host = nodes.hosts[0], nodes.hosts[-1]
    nodes.run(host, "rm -rf models")
    # Counted at the end that keeps its power: counters begin anew with it.
    counter = (head, "tx") if way == "power of the receiver" else (host, "rx")
    before, mark = nodes.counted(*counter), uuid.uuid4().hex
    # A head that lost its power is to be told soon; the default waits for a cable.
    patience = {"models_mirror_patience_s": 20} if way == "power of the head" else {}
    process = nodes.play(mark, models_mirror_bandwidth=BANDWIDTH, **patience)
    here = _wait_for_bytes(nodes, host, chance.randrange(1, int(0.9 * nodes.size)), process)
    if way == "cable":
        nodes.verb("cut", host)
        time.sleep(chance.uniform(1, 6))
        nodes.verb("heal", host)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, said[-4000:]
    else:
        if way == "the play":
            nodes.kill_play(process, mark)
        else:
            gone = host if way == "power of the receiver" else head
            nodes.verb("kill", gone)
            nodes.verb("start", gone)
            process.communicate(timeout=600)
        nodes.play_through()
    moved = nodes.counted(*counter) - before
    print(json.dumps({"cut": number, "way": way, "at": round(here / nodes.size, 2), "moved": moved / nodes.size}))
    assert nodes.sums(host) == whole
    assert moved < 1.1 * nodes.size, (way, moved / nodes.size)


def test_twenty_flipped_bits_are_found_and_only_those_files_move(nodes: Nodes) -> None:
    head, host = nodes.hosts[0], nodes.hosts[-1]
    nodes.play_through()
    chance = random.Random(SEED)
    files = [f"model-{n:05d}-of-{nodes.shards:05d}.safetensors" for n in chance.sample(range(1, nodes.shards + 1), 20)]
    flip = (
        "import os,sys\n"
        "for p in sys.argv[1:]:\n"
        "  s=os.stat(p); f=open(p,'r+b'); a=s.st_size//3; f.seek(a); b=f.read(1); f.seek(a)\n"
        "  f.write(bytes([b[0]^16])); f.close(); os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))\n"
    )
    paths = " ".join(f"models/{NAME}/{name}" for name in files)
    nodes.run(host, f"python3 -c {json.dumps(flip)!s} {paths}".replace("\\n", "\n"))
    assert nodes.sums(host) != nodes.sums(head)
    before = nodes.counted(host)
    said = nodes.play_through(models_deep=True)
    moved = nodes.counted(host) - before
    assert nodes.sums(host) == nodes.sums(head)
    share = 20 / nodes.shards
    assert share * nodes.size * 0.99 < moved < share * nodes.size * 1.1
    assert all(name in said for name in files)
