# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action as a play uses it: one task, nothing changed, quick, the same in check mode, all faults at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.plugins.card_play import play

REFERENCE = "poolside--Laguna-S-2.1-FP8"
OWN = f'extends = "{REFERENCE}"\n[serve]\nmax_num_seqs = 4\n'
BAD = f'extends = "{REFERENCE}"\n\n[serve]\nmax_num_seq = 4\ndtype = "bfloat"\n'
TASKS: dict[str, dict[str, Any]] = {
    "warm": {"src": REFERENCE},
    "reference": {"src": REFERENCE, "models_root": "/m", "nodes": 2, "host": "0.0.0.0", "port": 8000,
                  "node_memory_bytes": 121 * 2**30},
    "again": {"src": REFERENCE, "models_root": "/m", "nodes": 2, "host": "0.0.0.0", "port": 8000,
              "node_memory_bytes": 121 * 2**30},
    "beside": {"src": "own/mine.toml"},
    "by name": {"src": "mine", "cards_path": ["own"]},
    "untested": {"src": "Qwen/Qwen3.6-27B-FP8"},
    "bad": {"src": "own/bad.toml"},
    "unknown": {"src": "laguna"},
    "folder": {"src": "own/"},
    "too few": {"src": REFERENCE, "nodes": 1},
    "three": {"src": "Intel--Qwen3.5-397B-A17B-int4-AutoRound", "nodes": "3"},
    "overrides": {"src": REFERENCE, "overrides": {"serve.max_num_seqs": "3", "serve.enforce_eager": True}},
    "nonsense": {"src": REFERENCE, "nodes": 0},
    "no such option": {"src": REFERENCE, "node": 2},
    "listed": {"src": "Qwen/Qwen3.6-27B-FP8", "node_memory_bytes": 2**30, "listing": True},
    "no card": {},
}  # fmt: skip
Results = dict[str, dict[str, Any]]


def run(folder: Path, *arguments: str) -> Results:
    (folder / "own").mkdir()
    (folder / "own" / "mine.toml").write_text(OWN, encoding="utf-8")
    (folder / "own" / "bad.toml").write_text(BAD, encoding="utf-8")
    return dict(
        zip(
            TASKS,
            play(folder, [{"dgx_spark.vllm.card_info": task} for task in TASKS.values()], *arguments),
            strict=True,
        )
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(tmp_path_factory.mktemp("check"), "--check", "--diff")


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """A result without what differs from run to run."""
    return {
        key: value
        for key, value in found.items()
        if key not in ("seconds", "exception", "provenance", "errors", "file", "msg")
    }


def test_a_card_is_read_without_a_change_and_in_little_time(results: Results) -> None:
    found = results["reference"]
    assert found["changed"] is False
    assert found["serve_argv"][0] == "/m/Laguna-S-2.1-FP8"
    assert found["serve_argv"][-4:] == ["--host", "0.0.0.0", "--port", "8000"]
    assert found["warnings_found"] == []
    assert found["fits"] is True
    assert plain(results["again"]) == plain(found)
    assert min(results["again"]["seconds"], found["seconds"]) < 0.3


def test_check_mode_gives_the_same(results: Results, checked: Results) -> None:
    for name in TASKS:
        assert plain(checked[name]) == plain(results[name])


def test_a_path_is_meant_from_the_playbook_and_a_name_from_the_folders(results: Results) -> None:
    for name in ("beside", "by name"):
        assert results[name]["name"] == "mine"
        assert results[name]["card"]["serve"]["max_num_seqs"] == 4
        assert results[name]["provenance"]["serve.max_num_seqs"].endswith("own/mine.toml:3")


def test_an_untested_card_says_so(results: Results) -> None:
    found = results["untested"]
    assert any("untested" in warning for warning in found["warnings_found"])
    assert found["status"] == "untested"
    assert "warnings" in found


def test_a_bad_card_fails_with_msg_and_errors(results: Results) -> None:
    found = results["bad"]
    assert found["failed"]
    assert not found["changed"]
    assert [(error["table"], error["key"], error["line"], error["nearest"]) for error in found["errors"]] == [
        ("serve", "max_num_seq", 4, "max_num_seqs"), ("serve", "dtype", 5, "bfloat16"),
    ]  # fmt: skip
    assert all(error["given"] and error["allowed"] for error in found["errors"])
    assert "2 errors in the card" in found["msg"]
    assert "bad.toml:4: serve.max_num_seq" in found["msg"]


@pytest.mark.parametrize(
    ("name", "words"), [("unknown", REFERENCE), ("folder", "a directory"), ("too few", "2 node(s) at least")]
)
def test_what_cannot_be_read_or_placed(results: Results, name: str, words: str) -> None:
    assert results[name]["failed"]
    assert words in results[name]["msg"]
    assert results[name]["errors"]


def test_the_number_of_nodes_chooses_the_division(results: Results) -> None:
    found = results["three"]
    assert found["nodes"] == {"min": 2, "max": 4, "count": 3}
    assert "--pipeline-parallel-size" in found["serve_argv"]


def test_overrides(results: Results) -> None:
    found = results["overrides"]
    assert found["card"]["serve"]["max_num_seqs"] == 3
    assert found["provenance"]["serve.max_num_seqs"] == "overrides"


def test_wrong_arguments_are_named(results: Results) -> None:
    assert "nodes" in results["nonsense"]["msg"]
    assert "node" in results["no such option"]["msg"]
    assert "src" in results["no card"]["msg"]


def test_a_list_neither_fails_nor_warns(results: Results) -> None:
    found = results["listed"]
    assert not found.get("failed")
    assert found["fits"] is False
    assert "warnings" not in found
    assert any("a card that fits" in note for note in found["notes"])
