# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Finding cards, inheritance, overrides, and where each value came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _card
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_error import CardFaultError, Problem
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_load import find, load
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_toml import dump

from tests.unit.plugins.module_utils.card_makers import BUNDLED, CARDS, card

REFERENCE = "poolside--Laguna-S-2.1-FP8"


def write(folder: Path, name: str, text: str | dict[str, Any]) -> str:
    path = folder / f"{name}.toml"
    path.write_text(text if isinstance(text, str) else dump(text), encoding="utf-8")
    return str(path)


def faults(src: str, **more: Any) -> list[Problem]:
    with pytest.raises(CardFaultError) as caught:
        _card.card_info(src, [CARDS], **more)
    return caught.value.problems


def test_a_card_is_found_by_path_by_name_and_by_model_id(tmp_path: Path) -> None:
    expected = CARDS / f"{REFERENCE}.toml"
    for src in (REFERENCE, "poolside/Laguna-S-2.1-FP8", str(expected), f"{REFERENCE}.toml"):
        assert find(src, [CARDS]) == expected
    own = write(tmp_path, REFERENCE, card())
    assert find(REFERENCE, [tmp_path, CARDS]) == Path(own)


def test_an_unknown_card_names_the_nearest_and_all() -> None:
    found = faults("poolside--Laguna-S-2.1-FP9")[0]
    assert found.nearest == REFERENCE
    assert all(name in found.allowed for name in BUNDLED)
    for src in ("", "\0", "x" * 5000, "../" * 1000, "/"):
        assert faults(src)


def test_a_change_of_one_number_is_a_three_line_card(tmp_path: Path) -> None:
    own = write(tmp_path, "mine", f'extends = "{REFERENCE}"\n[serve]\nmax_num_seqs = 4\n')
    base, mine = _card.card_info(REFERENCE, [CARDS]), _card.card_info(own, [CARDS])
    assert mine["name"] == "mine"
    changed = [(old, new) for old, new in zip(base["serve_argv"], mine["serve_argv"], strict=True) if old != new]
    assert changed == [("2", "4")]
    assert mine["provenance"]["serve.max_num_seqs"] == f"{own}:3"
    assert mine["provenance"]["serve.max_model_len"].startswith(str(CARDS / REFERENCE))
    assert mine["provenance"]["expect.answer"] == "default"


def test_inheritance_merges_tables_and_replaces_lists(tmp_path: Path) -> None:
    write(tmp_path, "base", card({"capabilities": ["a", "b"], "environment.all": {"A": "1", "B": "1"}, "serve.seed": 1,
                                  "serve.hf_overrides": {"x": {"y": 1, "z": 2}}}))  # fmt: skip
    write(tmp_path, "middle", 'extends = "base"\ncapabilities = ["c"]\n[environment.all]\nB = "2"\n')
    own = write(tmp_path, "top", 'extends = "middle.toml"\n[environment.all]\nC = "3"\n[serve.hf_overrides.x]\ny = 3\n')
    found = _card.card_info(own, [])
    assert found["card"]["capabilities"] == ["c"]
    assert found["environment"]["all"] == {"A": "1", "B": "2", "C": "3"}
    assert found["card"]["serve"] == {"seed": 1, "hf_overrides": {"x": {"y": 3, "z": 2}}}
    origin = {key: Path(where).name for key, where in found["provenance"].items()}
    assert origin["environment.all.A"].startswith("base.toml:")
    assert origin["environment.all.B"] == "middle.toml:4"
    assert origin["environment.all.C"] == "top.toml:3"
    assert origin["serve.hf_overrides.x.y"] == "top.toml:5"


def test_unset_drops_what_the_other_card_says(tmp_path: Path) -> None:
    own = write(tmp_path, "plain", f'extends = "{REFERENCE}"\npatches = []\nunset = ["runtime", "speculative"]\n')
    found = _card.card_info(own, [CARDS])
    assert "--speculative-config" not in found["serve_argv"]
    assert [model["role"] for model in found["models"]] == ["target"]
    bad = write(tmp_path, "bad", f'extends = "{REFERENCE}"\n\nunset = ["runtime.typo"]\n')
    problem = faults(bad)[0]
    assert (problem.path, problem.line, problem.given) == ("unset", 3, "runtime.typo")


def test_a_circle_a_long_chain_and_a_missing_card(tmp_path: Path) -> None:
    write(tmp_path, "a", 'extends = "b"\n')
    own = write(tmp_path, "b", 'extends = "a"\n')
    assert "circle" in faults(own)[0].allowed
    for at in range(12):
        own = write(tmp_path, f"c{at}", f'extends = "c{at - 1}"\n' if at else card())
    assert "at most 8" in faults(own)[0].allowed
    missing = write(tmp_path, "m", 'n_layers = 1\nextends = "nothing-like-it"\n')
    problem = faults(missing)[0]
    assert (problem.path, problem.line, problem.file) == ("extends", 2, missing)
    wrong = write(tmp_path, "w", "extends = 3\n")
    assert faults(wrong)[0].path == "extends"


def test_a_fault_names_the_file_and_line_it_stands_in(tmp_path: Path) -> None:
    base = write(tmp_path, "base", dump(card({"serve.seed": -1})))
    own = write(tmp_path, "own", 'extends = "base"\n# why\n[serve]\n\ndtype = "bfloat"\nmax_model_length = 5\n')
    found = {problem.path: (Path(problem.file).name, problem.line, problem.nearest) for problem in faults(own)}
    lines = Path(base).read_text(encoding="utf-8").splitlines()
    assert found == {
        "serve.seed": ("base.toml", lines.index("seed = -1") + 1, ""),
        "serve.dtype": ("own.toml", 5, "bfloat16"),
        "serve.max_model_length": ("own.toml", 6, "max_model_len"),
    }
    missing = faults(write(tmp_path, "missing", 'model_id = "a/b"\n'))
    assert {problem.path for problem in missing} >= {"n_layers", "hidden_size", "storage_size.in_bytes"}
    assert all(problem.file.endswith("missing.toml") for problem in missing)


def test_overrides_win_and_are_named_as_the_origin() -> None:
    overrides = {"serve.max_num_seqs": "4", "environment.all": {"A": "1"}, "expect.acceptance_min": None,
                 "serve": {"enforce_eager": "true"}}  # fmt: skip
    found = _card.card_info(REFERENCE, [CARDS], overrides)
    assert found["card"]["serve"]["max_num_seqs"] == 4
    assert found["environment"]["all"] == {"A": "1"}
    assert found["expect"]["acceptance_min"] is None
    for key in ("serve.max_num_seqs", "environment.all.A", "serve.enforce_eager"):
        assert found["provenance"][key] == "overrides"
    assert "expect.acceptance_min" not in found["provenance"]


def test_overrides_do_not_change_what_they_came_from() -> None:
    first = _card.card_info(REFERENCE, [CARDS], {"serve.max_num_seqs": 1})
    assert _card.card_info(REFERENCE, [CARDS])["serve_argv"] != first["serve_argv"]


def test_faults_of_overrides_are_faults_of_the_card() -> None:
    found = faults(REFERENCE, overrides={"serve.max_num_seq": 1, "serve.dtype": "fp16", "a..b": 1, "": 2})
    assert {problem.file for problem in found} == {"overrides"}
    assert {problem.key for problem in found} == {"a..b", ""}
    found = faults(REFERENCE, overrides={"serve.max_num_seq": 1, "serve.dtype": "bfloat", "model_id.x": 1})
    assert {problem.path: problem.nearest for problem in found if problem.path != "model_id"} == {
        "serve.max_num_seq": "max_num_seqs", "serve.dtype": "bfloat16",
    }  # fmt: skip


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_card_is_good_and_says_source_date_and_status(name: str) -> None:
    text = (CARDS / f"{name}.toml").read_text(encoding="utf-8")
    head = text[
        : text.index("\n", text.rindex("# ", 0, text.index("\nmodel_id" if "\nmodel_id" in text else "\nextends")))
    ]
    assert "Source" in head
    assert "date" in head or "Facts as of 20" in head
    found = _card.card_info(name, [CARDS], models_root="/m")
    assert found["name"] == name.replace("/", "--")
    assert found["card"]["model_id"].replace("/", "--") in name
    assert found["card"]["status"] in text or "extends" in text
    told = [warning for warning in found["warnings"] if "untested" in warning]
    assert bool(told) is (found["status"] == "untested")


@pytest.mark.parametrize("name", BUNDLED)
def test_the_normalised_card_is_a_card_with_the_same_arguments(name: str, tmp_path: Path) -> None:
    first = _card.card_info(name, [CARDS], models_root="/m")
    again = _card.card_info(write(tmp_path, name, first["card"]), [], models_root="/m")
    for key in ("card", "serve_argv", "rank_argv", "ray_argv", "environment", "caps", "models", "budget", "expect"):
        assert again[key] == first[key]


def test_a_public_card_of_the_other_format_loads_without_a_change(tmp_path: Path) -> None:
    own = write(tmp_path, "other", (Path(__file__).parent / "public_card.toml").read_text(encoding="utf-8"))
    found = _card.card_info(own, [])
    assert found["status"] == "untested"
    assert found["executor"] == "mp"
    assert found["nodes"] == {"min": 1, "max": 1, "count": 1}
    assert found["serve_argv"] == [
        "owner/Model-FP8", "--revision", "0123456789abcdef0123456789abcdef01234567", "--served-model-name", "model-fp8",
        "--max-num-batched-tokens", "8192", "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
        "--reasoning-parser", "qwen3", "--speculative-config",
        '{"method":"dflash","num_speculative_tokens":15,"model":"owner/Model-DFlash-FP8",'
        '"revision":"89abcdef0123456789abcdef0123456789abcdef"}',
    ]  # fmt: skip
    ignored = {note.split(":")[0] for note in found["notes"] if "ignored" in note}
    assert ignored == {"vision", "modalities", "audio", "gguf_file", "runtime.mtp_heads", "runtime.mtp_max_depth",
                       "runtime.served_spec_type", "runtime.prompt_renderer", "runtime.output_parser",
                       "runtime.metal_fast_synch"}  # fmt: skip


def test_loading_reads_the_parents_once_and_keeps_them_apart() -> None:
    one, two = load("dgx-spark--Laguna-Chain-Tiny-K3", [CARDS]), load("dgx-spark--Laguna-Chain-Tiny-K0", [CARDS])
    assert one.data["runtime"]["vllm_spec_draft_repo"].endswith("-K3")
    assert two.data["runtime"]["vllm_spec_draft_repo"].endswith("-K0")
