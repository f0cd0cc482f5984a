# SPDX-License-Identifier: GPL-3.0-or-later
"""Which release all nodes can go back to."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_rollback import choose

ROOT = "/home/spark/.local/share/dgx-spark-vllm"
OTHER = "/srv/dgx"


def state(current: str, history: list[str], releases: list[str], root: str = ROOT, adopted: str = "") -> dict[str, Any]:
    def path(name: str) -> str:
        return name if name.startswith("/") or not name else f"{root}/releases/{name}"

    return {
        "current": path(current),
        "history": [path(name) for name in history],
        "releases": releases,
        "adopted": [adopted] if adopted else [],
    }


def test_the_latest_that_every_node_has() -> None:
    states = {
        "a": state("c", ["c", "b", "a"], ["a", "b", "c"]),
        "b": state("c", ["c", "b", "a"], ["a", "c"], OTHER),
    }
    assert choose(states, {"a": ROOT, "b": OTHER}) == ("a", [])
    states["b"]["releases"].append("b")
    assert choose(states, {"a": ROOT, "b": OTHER}) == ("b", [])


def test_a_switch_that_was_cut_is_completed() -> None:
    states = {"a": state("new", ["new", "old"], ["new", "old"]), "b": state("old", ["old"], ["new", "old"])}
    assert choose(states, dict.fromkeys(states, ROOT)) == ("old", [])


def test_an_adopted_environment_can_be_gone_back_to() -> None:
    venv = "/home/spark/venvs/vllm-025"
    states = {host: state("new", ["new", venv], ["new"], adopted=venv) for host in ("a", "b")}
    assert choose(states, dict.fromkeys(states, ROOT)) == (venv, [])
    states["b"]["adopted"] = []
    assert choose(states, dict.fromkeys(states, ROOT))[0] == ""


@pytest.mark.parametrize(
    ("history", "releases", "found"),
    [
        (["one"], ["one"], "current is one; before it, still there: none"),
        (["one", "gone"], ["one"], "current is one; before it, still there: none"),
        ([], [], "current is one; before it, still there: none"),
    ],
)
def test_refused_with_a_reason_for_each_host(history: list[str], releases: list[str], found: str) -> None:
    states = {host: state("one", history, releases) for host in ("a", "b")}
    release, errors = choose(states, dict.fromkeys(states, ROOT))
    assert release == ""
    assert [(item["host"], item["found"]) for item in errors] == [("a", found), ("b", found)]
    assert all(item["cure"] for item in errors)


def test_a_wanted_release_must_be_on_every_node() -> None:
    states = {"a": state("c", ["c", "b"], ["b", "c"]), "b": state("c", ["c", "b", "a"], ["a", "c"])}
    release, errors = choose(states, dict.fromkeys(states, ROOT), "b")
    assert release == ""
    assert [item["host"] for item in errors] == ["b"]
    assert errors[0]["found"] == "not there; beside the current c: a"
    assert choose(states, dict.fromkeys(states, ROOT), "c")[1][0]["found"] == "c is current already"
    states["b"]["releases"].append("b")
    assert choose(states, dict.fromkeys(states, ROOT), "b") == ("b", [])
