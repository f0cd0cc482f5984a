# SPDX-License-Identifier: GPL-3.0-or-later
"""Both rails carry, and one that is dead costs moments. Real rsync daemons on two loopback addresses."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _mirror_pull, _mirror_work
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_pull import Source
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_rsync import Rails

from tests.unit.plugins.module_utils.mirror_nodes import content, free_port, make_head, offering, order_for, place, take

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
FIRST, SECOND = "127.0.0.1", "127.0.0.2"
PEERS = [FIRST, SECOND]


@pytest.fixture(autouse=True)
def _small_files_count_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every file is a call of its own."""
    monkeypatch.setattr(_mirror_work, "SMALL", 100_000)
    monkeypatch.setattr(_mirror_pull, "SMALL", 100_000)


def calls(log: Path) -> int:
    """How often a daemon was asked for files."""
    return log.read_text().count("allowed access on module Model")


def test_both_rails_carry_a_share(tmp_path: Path) -> None:
    root, port = tmp_path / "head", free_port()
    manifest = make_head(root, shards=8)
    logs = {address: tmp_path / address for address in PEERS}
    with (
        offering(root, FIRST, port, PEERS, folder=logs[FIRST]),
        offering(root, SECOND, port, PEERS, folder=logs[SECOND]),
    ):
        take(order_for(tmp_path / "peer", manifest, [Source("head", PEERS, port)]))
    place(tmp_path / "peer", manifest)
    assert content(tmp_path / "peer") == content(root)
    shares = [calls(folder / "rsyncd.log") for folder in logs.values()]
    assert min(shares) >= 3, shares


@pytest.mark.parametrize("alive", PEERS)
def test_a_dead_rail_is_left_out(tmp_path: Path, alive: str) -> None:
    root, port = tmp_path / "head", free_port()
    manifest = make_head(root, shards=8)
    began = time.monotonic()
    with offering(root, alive, port, PEERS):
        found = take(order_for(tmp_path / "peer", manifest, [Source("head", PEERS, port)], streams=1))
    assert found["moved"] == sum(item["size"] for item in manifest["files"])
    # One try at the dead one; asked again at each file it would be eight seconds.
    assert time.monotonic() - began < 7


def test_silent_rails_are_asked_all_the_same_where_there_is_no_other() -> None:
    rails = Rails()
    assert {rails.pick(PEERS, rails.turn()) for _ in range(2)} == set(PEERS)
    rails.silent(FIRST)
    assert {rails.pick(PEERS, turn) for turn in range(4)} == {SECOND}
    rails.silent(SECOND)
    assert {rails.pick(PEERS, turn) for turn in range(4)} == set(PEERS)
