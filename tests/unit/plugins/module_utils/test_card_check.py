# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""A card against the table of fields: every fault at once, each with what was given, what is allowed, what is near."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_check import check, coerce, parse_size
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_error import Problem, shown
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_schema import fields

from tests.unit.plugins.module_utils.card_makers import card

GIB = 2**30


def one(changes: dict[str, Any], engine: str = "0.25.1") -> Problem:
    found = check(card(changes), engine).problems
    assert len(found) == 1, [item.text() for item in found]
    return found[0]


def test_the_smallest_card_is_enough() -> None:
    result = check(card())
    assert (result.problems, result.notes, result.warnings) == ([], [], [])


@pytest.mark.parametrize("path", [path for path, field in fields().items() if field.required])
def test_a_required_key_is_missed_by_name(path: str) -> None:
    found = one({path: None})
    assert (found.path, found.given) == (path, None)
    assert "required" in found.allowed


WRONG: dict[str, list[Any]] = {
    "bool": [1, 0, "true", [], {}, 1.0],
    "int": [True, 1.0, "1", [1], float("nan"), float("inf"), 2**80],
    "float": [True, "1", float("nan"), float("inf"), -float("inf"), 2**80, [1.0]],
    "str": [1, True, ["a"], {}, datetime.date(2026, 1, 1), "bell \a", "escape \x1b[0m", "\x7f"],
    "strs": ["a", [1], ["a", 1], {}, [["a"]], ["\0"]],
    "size": [True, 1.5, "1 pound", "G", "-1", "1e3", "99999999999999G", [], float("nan")],
    "table": ["a", [1], {"a": float("nan")}, {"a": datetime.time(1, 2)}, {"a": [{"b": float("inf")}]}],
    "env": ["a", [1]],
    "layouts": ["a", [1]],
}


@pytest.mark.parametrize("path", fields())
def test_every_field_refuses_every_wrong_value(path: str) -> None:
    field = fields()[path]
    for given in WRONG[field.kind]:
        found = one({path: given})
        assert found.path == path
        assert found.allowed


@pytest.mark.parametrize("path", [path for path, field in fields().items() if field.low is not None])
def test_every_range_holds_at_both_ends(path: str) -> None:
    field = fields()[path]
    assert field.low is not None
    assert field.high is not None
    kind = float if field.kind == "float" else int
    for inside in (kind(field.low), kind(field.high)):
        assert not [problem for problem in check(card({path: inside})).problems if problem.path == path]
    step = 1e-6 if field.kind == "float" else 1
    for outside in (field.low - step, field.high + max(step, field.high * 1e-9)):
        assert one({path: kind(outside) if field.kind != "float" else outside}).path == path


@pytest.mark.parametrize("path", [path for path, field in fields().items() if field.choices])
def test_every_choice_is_taken_and_another_gets_the_nearest(path: str) -> None:
    field = fields()[path]
    for choice in field.choices:
        assert check(card({path: choice})).problems == []
    found = one({path: field.choices[-1] + "x"})
    assert found.nearest in field.choices
    assert all(choice in found.allowed for choice in field.choices)


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("serve.max_model_length", "max_model_len"),
        ("serve.max-num-seqs", "max_num_seqs"),
        ("runtime.vllm_spec_num_token", "vllm_spec_num_tokens"),
        ("runtime.vllm_spec_draft_rev", "vllm_spec_draft_revision"),
        ("model_idd", "model_id"),
        ("placment", "placement"),
        ("max_model_len", "serve.max_model_len"),
        ("serve.tensor_parallel_size", "parallel.tensor_parallel_size"),
        ("engine.enforce_eagre", "serve.enforce_eager"),
        ("memory.worker_max", ""),
    ],
)
def test_an_unknown_key_names_the_nearest(path: str, near: str) -> None:
    found = one({path: 1})
    assert found.path == path
    assert found.nearest == near or (not near and found.nearest)


def test_a_table_in_the_place_of_a_value_and_the_other_way_round() -> None:
    assert one({"serve": 1}).allowed == "a table: [serve]"
    assert one({"family": {"a": 1}}).path == "family"
    assert one({"speculative.config": 1}).path == "speculative.config"


def test_all_faults_come_at_once() -> None:
    found = check(card({"n_layers": "48", "serve.dtype": "fp16", "serve.typo": 1, "hidden_size": None})).problems
    assert sorted(problem.path for problem in found) == ["hidden_size", "n_layers", "serve.dtype", "serve.typo"]


def test_what_other_engines_use_is_ignored_with_a_note() -> None:
    result = check(
        card({"vision.model_type": "x", "audio": {}, "modalities.supports_audio_input": True, "gguf_file": "x",
              "runtime.mtp_heads": True, "runtime.served_spec_type": "x", "runtime.prompt_renderer": "x",
              "runtime.metal_fast_synch": False, "components": [{"a": 1}]})
    )  # fmt: skip
    assert result.problems == []
    assert len(result.notes) == 9
    assert all("ignored" in note for note in result.notes)


def test_an_ignored_name_is_no_licence_for_a_value() -> None:
    assert one({"vision": 1}).path == "vision"


def test_a_choice_of_a_later_engine_is_taken_with_a_warning_there_only() -> None:
    found = one({"serve.kv_cache_dtype": "nvfp4_ds_mla"})
    assert "engine.vllm" in found.allowed
    later = check(card({"serve.kv_cache_dtype": "nvfp4_ds_mla", "serve.moe_backend": "b12x"}), "0.33.0")
    assert later.problems == []
    assert len(later.warnings) == 2
    assert later.values["serve.moe_backend"] == "b12x"
    # Choices of no flag do not change with the engine.
    assert one({"speculative.trained_for": "FP4"}, "0.33.0").path == "speculative.trained_for"


def test_variables_are_texts_with_names() -> None:
    result = check(
        card({"environment.all": {"A": "1", "1B": "x", "C D": "x", "E": 1, "F": True, "G": "two\nlines", "H": "€ %$"}})
    )
    assert result.values["environment.all"] == {"A": "1", "H": "€ %$"}
    assert sorted(problem.key for problem in result.problems) == ["1B", "C D", "E", "F", "G"]
    assert all(problem.table == "environment.all" for problem in result.problems)


def test_layouts_are_tables_by_number_of_nodes() -> None:
    good = check(card({"layouts": {"3": {"pipeline_parallel_size": 3}}}))
    assert good.values["layouts"] == {"3": {"pipeline_parallel_size": 3}}
    bad = check(
        card(
            {"layouts": {"0": {}, "three": {}, "99": {}, "2": 1, "4": {"tensor_parallel": 4, "data_parallel_size": 0}}}
        )
    )
    assert sorted(problem.path for problem in bad.problems) == [
        "layouts.0", "layouts.2", "layouts.4.data_parallel_size", "layouts.4.tensor_parallel", "layouts.99",
        "layouts.three",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "size"),
    [(98 * GIB, 98 * GIB), ("98G", 98 * GIB), ("98 GiB", 98 * GIB), ("98gb", 98 * GIB), ("0.5M", 2**19), ("7", 7),
     ("12 K", 12_288), ("1.5T", 3 * 2**39), ("", None), ("G", None), ("1,5G", None), ("1e9", None), (True, None),
     (1.0, None), ("1GG", None), ("-1G", None)],
)  # fmt: skip
def test_sizes(given: Any, size: int | None) -> None:
    assert parse_size(given) == size


def test_text_of_an_inventory_becomes_what_its_field_is() -> None:
    for path, given, expected in (
        ("serve.max_num_seqs", " 4 ", 4),
        ("serve.enforce_eager", "True", True),
        ("serve.enforce_eager", "no", False),
        ("serve.gpu_memory_utilization", "0.85", 0.85),
        ("memory.head", "12", 12),
        ("memory.head", "12G", "12G"),
        ("serve.max_num_seqs", "four", "four"),
        ("family", "1", "1"),
        ("serve.max_num_seqs", 4, 4),
    ):
        assert coerce(fields()[path], given) == expected


def test_a_report_carries_only_plain_short_values() -> None:
    assert shown(float("nan")) == "nan"
    assert shown(2**4000) == "a number of 4001 bits"
    assert len(shown("x" * 10_000)) <= 160
    assert shown({"a": 1}) == "a table"
    assert shown([1, 2]) == "a list of 2"
    assert shown(datetime.date(2026, 1, 2)) == "2026-01-02"


def test_a_problem_says_where_and_what() -> None:
    problem = Problem("serve", "dtype", "fp16", "one of a, b", line=7, file="c.toml", nearest="a")
    assert problem.text() == "c.toml:7: serve.dtype: given 'fp16', allowed: one of a, b (nearest: a)"
    found = problem.as_dict()
    assert {key: found[key] for key in ("table", "key", "line", "given", "allowed", "nearest")} == {
        "table": "serve", "key": "dtype", "line": 7, "given": "fp16", "allowed": "one of a, b", "nearest": "a",
    }  # fmt: skip
    assert (found["subject"], found["found"], found["cure"]) == ("c.toml:7: serve.dtype", "fp16", "use a")
