# SPDX-License-Identifier: GPL-3.0-or-later
"""Another card and back, a card that cannot serve, a stop and a start, and random sequences of all that."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed.faults.chaos import CARDS, in_declared_state, run, sequence
from testbed.faults.load import Load
from testbed.faults.nodes import STATE, Cluster, wait_for

# First and last seed, and how many steps each: CHAOS=1-100x3 takes hours. The one of a test run kills a run of the site
# in its middle and moves a GID.
SEEDS, STEPS = os.environ.get("CHAOS", "22-22x2").split("x")
FIRST, LAST = (int(seed) for seed in SEEDS.split("-"))
BAD = f'extends = "{CARDS[0]}"\n[environment.worker]\nPYTHONHOME = "/nowhere"\n'


def test_a_switch_serves_the_other_card(cluster: Cluster, load: Load) -> None:
    done = cluster.play("playbooks/switch.yml", "-e", f"model_card={CARDS[1]}")
    assert done.status == 0, done.output[-3000:]
    assert in_declared_state(cluster, CARDS[1]) == ""
    assert load.once().answered


@pytest.mark.skipif(os.environ.get("FAULTS") != "all", reason="takes minutes; FAULTS=all runs it")
def test_a_card_that_cannot_serve_gives_way_to_the_one_before(cluster: Cluster, load: Load, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(BAD)
    done = cluster.play("playbooks/switch.yml", "-e", f"model_card={tmp_path}/bad.toml")
    assert done.status != 0
    assert f"{CARDS[1]} serves again" in done.output
    assert in_declared_state(cluster, CARDS[1]) == ""
    assert load.once().answered


def test_a_stop_lets_requests_end_and_a_start_serves_what_served(cluster: Cluster, load: Load) -> None:
    # Two at a time are worked on; the stream of short ones takes turns with these.
    with ThreadPoolExecutor(2) as pool:
        long = [pool.submit(load.once, 200) for _ in range(2)]
        wait_for(lambda: "" if cluster.running() >= 2 else "not yet", 20, "two requests run", 0.1)
        cluster.head.run("systemctl --user stop vllm-serve", timeout=60)
        assert [request.result().text for request in long] == ["200 tokens"] * 2
    done = cluster.play("playbooks/stop.yml")
    assert done.status == 0, done.output[-3000:]
    assert set(cluster.engines().values()) == {0}
    assert not load.once().answered
    done = cluster.play("playbooks/start.yml")
    assert done.status == 0, done.output[-3000:]
    assert in_declared_state(cluster, CARDS[1]) == ""
    assert load.once().answered


def test_of_two_plays_one_is_refused_and_told_of_the_other(cluster: Cluster) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(cluster.play, "site.yml")
        lock = f"{STATE}/play.lock"
        wait_for(
            lambda: "" if cluster.head.run(f"cat {lock}", check=False) else "no lock", 60, "the first play works", 0.2
        )
        second = cluster.play("site.yml")
        assert first.result().status == 0, first.result().output[-3000:]
    assert second.status != 0
    assert re.search(r"process \d+, .*\) since 20", second.output), second.output[-3000:]


@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_a_random_sequence_ends_in_the_declared_state(cluster: Cluster, seed: int) -> None:
    run(cluster, sequence(seed, int(STEPS)), CARDS[0])
