# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks without Ray, in the system's scope: as the ordinary user, restarted as one, back after a boot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.faults.__main__ import open_load
from testbed.faults.catalog import FAULTS
from testbed.faults.judge import base_load, complaints, watch
from testbed.faults.load import Load
from testbed.faults.nodes import Cluster


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    bed = Path(os.environ["BED_DIR"]).resolve()
    return Cluster(bed, ("-e", "@molecule/ranks/vars/site.yml"), "system", "VLLM::Worker")


@pytest.fixture(scope="module")
def load(cluster: Cluster) -> Iterator[Load]:
    stream = open_load(cluster)
    yield stream
    stream.stop()


def test_the_systems_units_run_as_the_ordinary_user_and_no_other_are_left(cluster: Cluster) -> None:
    for node, unit in ((cluster.head, "vllm-serve"), (cluster.worker, "vllm-rank")):
        (rank,) = node.pids(cluster.rank)
        assert node.run(f"stat -c %U /proc/{rank}").strip() == "spark"
        assert f"/system.slice/{unit}.service" in node.run(f"cat /proc/{rank}/cgroup")
        assert node.run("ls .config/systemd/user/vllm-*.service 2>/dev/null || true") == ""
        assert node.run("pgrep -x raylet || true") == ""


def test_what_the_units_may_do_is_little(cluster: Cluster) -> None:
    """The exposure that systemd counts is below 4.5; a unit that says nothing has 9.6."""
    for node, unit in ((cluster.head, "vllm-serve"), (cluster.worker, "vllm-rank"), (cluster.head, "vllm-watchdog")):
        node.run(f"systemd-analyze security --no-pager --threshold=45 {unit}.service")


@pytest.mark.parametrize("name", ["rank-worker", "reboot-both"])
def test_serving_again_by_itself(cluster: Cluster, load: Load, name: str) -> None:
    fault = next(fault for fault in FAULTS if fault.name == name)
    result = watch(cluster, load, fault, base_load(cluster))
    assert complaints(result, cluster) == []
