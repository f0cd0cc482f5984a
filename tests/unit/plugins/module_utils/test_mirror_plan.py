# SPDX-License-Identifier: GPL-3.0-or-later
"""Who stages, who offers, who takes what from whom: from states of nodes, without nodes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_plan import plan, summary
from hypothesis import given
from hypothesis import strategies as st

WANTED = [
    {"name": "Target", "role": "target", "bytes": 1000, "revision": "a" * 40},
    {"name": "Draft", "role": "draft", "bytes": 10, "revision": None},
]
GOOD = {
    "complete": True,
    "manifest": "m",
    "unseen": [],
    "revision": "a" * 40,
    "bytes": 1000,
    "arrived": 0,
    "to_move": 0,
    "problems": [],
    "files": {"a": [900, "x"], "b": [90, "y"], "c": [10, "z"]},
}


def state(name: str, **change: Any) -> dict[str, Any]:
    return GOOD | {"name": name, "bytes": 1000 if name == "Target" else 10} | change


EMPTY = {"complete": False, "manifest": "", "revision": "", "bytes": 0}


def node(
    target: dict[str, Any] | None = None, draft: dict[str, Any] | None = None, free: int = 10**6
) -> dict[str, Any]:
    return {"models": [state("Target", **(target or {})), state("Draft", **(draft or {}))], "disk_free": free}


def planned(nodes: list[dict[str, Any]], reserve: int = 100) -> dict[str, Any]:
    hosts = [f"n{i}" for i in range(len(nodes))]
    addresses = {host: [f"10.0.0.{i}", f"10.0.1.{i}"] for i, host in enumerate(hosts)}
    return plan(hosts, WANTED, dict(zip(hosts, nodes, strict=True)), addresses, "/m", reserve)


def test_whole_and_equal_nodes_have_nothing_to_do() -> None:
    found = planned([node(), node()])
    assert not found["work"]
    assert found["errors"] == []
    assert all(not mine["stage"] and not mine["receive"] and not mine["offer"] for mine in found["hosts"].values())


def test_empty_nodes_stage_on_the_head_and_mirror_to_the_others() -> None:
    found = planned([node(EMPTY, EMPTY), node(EMPTY, EMPTY)])
    head, peer = found["hosts"]["n0"], found["hosts"]["n1"]
    assert head["stage"] == ["Target", "Draft"]
    assert head["receive"] == []
    assert head["offer"] == ["Target", "Draft"]
    assert head["peers"] == ["10.0.0.1", "10.0.1.1"]
    assert peer["receive"] == ["Target", "Draft"]
    assert peer["sources"] == [{"host": "n0", "addresses": ["10.0.0.0", "10.0.1.0"], "chained": False}]
    assert head["to_move"] == peer["to_move"] == 1010
    assert summary(found, "n0", "hub") == [
        "n0: Target, Draft: 1.01 kB (1010 bytes) from hub",
        "n1: Target, Draft: 1.01 kB (1010 bytes) from n0 over the fabric",
    ]


def test_several_receivers_form_a_chain_with_the_head_as_last_resort() -> None:
    found = planned([node(), *[node(EMPTY, EMPTY) for _ in range(4)]])
    sources = [[(s["host"], s["chained"]) for s in found["hosts"][f"n{i}"]["sources"]] for i in range(1, 5)]
    assert sources == [
        [("n0", False)],
        [("n1", True), ("n0", False)],
        [("n2", True), ("n0", False)],
        [("n3", True), ("n0", False)],
    ]
    assert [bool(found["hosts"][f"n{i}"]["offer"]) for i in range(5)] == [True, True, True, True, False]
    assert found["hosts"]["n1"]["peers"] == ["10.0.0.2", "10.0.1.2"]
    assert len(found["hosts"]["n0"]["peers"]) == 8


def test_a_node_that_lacks_little_asks_the_head_alone() -> None:
    short = {"complete": False, "to_move": 40}
    found = planned([node(), node(EMPTY, EMPTY), node(short), node(EMPTY, EMPTY)])
    assert [s["host"] for s in found["hosts"]["n2"]["sources"]] == ["n0"]
    assert found["hosts"]["n2"]["receive"] == ["Target"]
    assert found["hosts"]["n2"]["to_move"] == 40
    assert [s["host"] for s in found["hosts"]["n3"]["sources"]] == ["n1", "n0"]


def test_of_another_version_only_what_differs_is_moved() -> None:
    older = {"manifest": "older", "files": {"a": [900, "x"], "b": [90, "other"], "gone": [5, "g"]}}
    found = planned([node(), node(older)])
    assert found["hosts"]["n1"]["to_move"] == 100
    assert summary(found, "n0", "hub") == ["n1: Target: 100 B (100 bytes) from n0 over the fabric"]
    # What has arrived of it before is counted once, and more than the whole is never said.
    assert planned([node(), node(older | {"arrived": 60})])["hosts"]["n1"]["to_move"] == 40
    broken = older | {"complete": False, "to_move": 950}
    assert planned([node(), node(broken)])["hosts"]["n1"]["to_move"] == 1000


def test_a_file_that_changed_is_looked_into_where_it_is() -> None:
    found = planned([node(), node({"unseen": ["model-00003.safetensors"]})])
    assert found["hosts"]["n0"]["stage"] == []
    assert found["hosts"]["n1"]["receive"] == ["Target"]
    assert found["hosts"]["n1"]["to_move"] == 0
    on_head = planned([node({"unseen": ["x"]}), node()])
    assert on_head["hosts"]["n0"]["stage"] == ["Target"]


def test_a_model_that_somebody_else_put_there_is_proved_before_it_is_mirrored() -> None:
    adopted = {"manifest": "", "revision": ""}
    assert planned([node(adopted, adopted)])["work"] is False
    found = planned([node(adopted), node(adopted)])
    assert found["hosts"]["n0"]["stage"] == ["Target"]
    assert found["hosts"]["n1"]["receive"] == ["Target"]
    assert "to be proved" in summary(found, "n0", "hub")[0]


def test_another_pinned_revision_is_staged_anew() -> None:
    old = {"revision": "b" * 40}
    found = planned([node(old), node(old)])
    assert found["hosts"]["n0"]["stage"] == ["Target"]
    assert found["hosts"]["n0"]["to_move"] == found["hosts"]["n1"]["to_move"] == 1000
    assert planned([node(None, old), node(None, old)])["work"] is False


def test_the_disk_of_every_node_is_checked_before_the_first_byte() -> None:
    """C73: all of them in one report."""
    found = planned([node(EMPTY, EMPTY, free=1109), node(EMPTY, EMPTY, free=1110), node(EMPTY, EMPTY, free=5)])
    assert [fault["host"] for fault in found["errors"]] == ["n0", "n2"]
    assert "1.01 kB" in found["errors"][0]["expected"]
    assert planned([node(free=0), node(free=0)])["errors"] == []


def test_what_has_arrived_before_needs_no_room_again() -> None:
    half = EMPTY | {"arrived": 600, "bytes": 0}
    found = planned([node(), node(half, free=520)])
    assert found["hosts"]["n1"]["to_move"] == 400
    assert found["errors"] == []


def test_faults_of_a_draft_are_told_once() -> None:
    bad = {"draft_faults": [{"file": "config.json", "found": "a", "expected": "b", "cure": "c"}]}
    found = planned([node(None, bad), node(None, bad)])
    assert [(f["host"], f["subject"]) for f in found["errors"]] == [("n0", "Draft/config.json")]


@given(st.lists(st.sampled_from(["whole", "empty", "short", "half"]), min_size=1, max_size=8))
def test_whatever_the_nodes_have_every_taker_is_served(kinds: list[str]) -> None:
    variants: dict[str, dict[str, Any]] = {
        "whole": {},
        "empty": EMPTY,
        "short": {"complete": False, "to_move": 10},
        "half": EMPTY | {"arrived": 500},
    }
    found = planned([node(variants[kind]) for kind in kinds])
    hosts = found["hosts"]
    for name, mine in hosts.items():
        if not mine["receive"]:
            assert mine["sources"] == []
            continue
        assert mine["sources"][-1]["host"] == "n0"
        for source in mine["sources"]:
            offer = hosts[source["host"]]
            assert set(mine["addresses"]) <= set(offer["peers"])
            assert set(mine["receive"]) <= set(offer["offer"])
            assert source["host"] != name


@pytest.mark.parametrize("count", [2, 4, 8])
def test_the_head_feeds_one_chain_whatever_the_number(count: int) -> None:
    found = planned([node(), *[node(EMPTY, EMPTY) for _ in range(count)]])
    first = [name for name, mine in found["hosts"].items() if [s["host"] for s in mine["sources"]] == ["n0"]]
    assert first == ["n1"]
