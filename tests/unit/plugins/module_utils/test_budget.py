# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The memory budget: its figures, its bounds, its faults, and how it relates to what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._budget_log import measured_from_log
from ansible_collections.dgx_spark.vllm.plugins.module_utils._budget_table import gib, table
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card import card_info
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_error import CardFaultError, Problem
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_toml import dump

from tests.unit.plugins.module_utils.card_makers import CARDS, card

GIB = 2**30
SPARK = 121 * GIB
REFERENCE = "poolside--Laguna-S-2.1-FP8"
LAGUNA = {
    "num_hidden_layers": 48, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 3072,
    "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 12, "sliding_window": 512, "dtype": "bfloat16",
}  # fmt: skip
FP8_KV = {
    "quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
}
DRAFT = {
    "num_hidden_layers": 6, "num_attention_heads": 72, "num_key_value_heads": 8, "head_dim": 128,
    "layer_types": ["sliding_attention"] * 6, "sliding_window": 512,
}  # fmt: skip


def info(src: str = REFERENCE, **more: Any) -> dict[str, Any]:
    return card_info(src, [CARDS], **more)


def row(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in found["budget"] if item["name"] == name)


def faults(src: str = REFERENCE, **more: Any) -> list[Problem]:
    with pytest.raises(CardFaultError) as caught:
        info(src, **more)
    return caught.value.problems


def own(tmp_path: Path, changes: dict[str, Any]) -> str:
    path = tmp_path / "own.toml"
    path.write_text(dump(card(changes)), encoding="utf-8")
    return str(path)


def test_laguna_s_does_not_fit_on_one_node_and_fits_on_two() -> None:
    found = info()
    assert found["verdict"].startswith("does not fit on one node, fits on two")
    assert found["fits"] is True
    assert found["verdict"] in found["notes"]
    assert row(found, "weights of a rank")["value"] == 60_500_000_000
    assert all(item["formula"] for item in found["budget"])


def test_the_measured_tokens_are_the_upper_bound_of_the_estimate_and_nothing_was_fitted() -> None:
    found = info()
    tokens = row(found, "tokens in the KV pool")
    # 5 GiB / (18 layers x 32,768 or 16,384 bytes) blocks; 16,384 + 2 x 545 blocks for a context.
    per_context = 262_144 // 16 + 2 * (-(-(511 + 8192) // 16) + 1)
    bounds = [int(5 * GIB // (18 * page) / per_context * 262_144) for page in (32_768, 16_384)]
    assert [tokens["low"], tokens["high"]] == bounds == [136_547, 273_095]
    assert tokens["value"] is None
    assert round(row(found, "full contexts")["high"], 2) == 1.04
    measured = [note for note in found["notes"] if note.startswith("KV, measured")]
    assert len(measured) == 1
    assert "273,095 tokens, 1.04 contexts" in measured[0]
    assert "FP8 by the checkpoint's own scheme" in measured[0]


def test_with_the_configs_the_estimate_is_one_figure() -> None:
    exact = info(configs={"target": {**LAGUNA, **FP8_KV}, "draft": DRAFT})
    assert row(exact, "tokens in the KV pool")["value"] == 273_095
    assert row(exact, "tokens in the KV pool")["source"] == "config.json"
    assert row(exact, "KV of a token and rank")["value"] == 18 * 2 * 4 * 128


def test_configs_under_the_models_root_are_read(tmp_path: Path) -> None:
    for folder, config in (("Laguna-S-2.1-FP8", {**LAGUNA, **FP8_KV}), ("Laguna-S-2.1-DFlash-W4A16", DRAFT)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert row(info(models_root=str(tmp_path)), "tokens in the KV pool")["value"] == 273_095
    (tmp_path / "Laguna-S-2.1-FP8" / "config.json").write_text("[" * 100_000, encoding="utf-8")
    assert row(info(models_root=str(tmp_path)), "tokens in the KV pool")["value"] is None


def test_a_pool_below_one_context_is_refused_with_the_arithmetic_where_the_config_allows_it() -> None:
    # KV in 16 bits, as a config without a scheme says: 0.52 contexts.
    found = faults(configs={"target": LAGUNA, "draft": DRAFT})
    assert [problem.path for problem in found] == ["serve.kv_cache_memory_bytes"]
    assert "17474 blocks x 18 layers x 32768 bytes = 10306584576 bytes" in found[0].allowed
    # Without a config only a pool that is too small under every reading is refused.
    assert info()["warnings"] == []
    small = faults(overrides={"serve.kv_cache_memory_bytes": 4 * GIB})
    assert small[0].path == "serve.kv_cache_memory_bytes"
    other = info(overrides={"serve.kv_cache_memory_bytes": 6 * GIB})
    assert any("less than one context" in warning for warning in other["warnings"])


def test_the_engines_own_figure_replaces_the_estimate() -> None:
    log = (
        "INFO kv_cache_utils.py:2146] GPU KV cache size: 100 tokens\n"
        "INFO gpu_worker.py:462] Available KV cache memory: 32.44 GiB\n"
        "INFO kv_cache_utils.py:2146] GPU KV cache size: 273,095 tokens\n"
        "INFO kv_cache_utils.py:2148] Maximum concurrency for 262,144 tokens per request: 1.04x\n"
    )
    measured = measured_from_log(log)
    assert measured == {"kv_tokens": 273_095.0, "contexts": 1.04, "kv_gib": 32.44}
    found = info(measured=measured)
    tokens = row(found, "tokens in the KV pool")
    assert (tokens["value"], tokens["low"], tokens["source"]) == (273_095, 273_095, "measured")
    assert row(found, "full contexts")["value"] == pytest.approx(1.0418, abs=1e-4)
    assert measured_from_log("nothing") == {}


def test_figures_of_another_start_are_not_taken() -> None:
    other = info(measured={"kv_tokens": 5, "start_sha256": "0" * 64})
    assert row(other, "tokens in the KV pool")["source"] != "measured"
    same = info(measured={"kv_tokens": 5, "start_sha256": other["start_sha256"]})
    assert row(same, "tokens in the KV pool")["value"] == 5
    # One number of the card more, and it is another start.
    assert info(overrides={"serve.max_num_seqs": 3})["start_sha256"] != other["start_sha256"]


def test_a_config_of_a_node_is_known_by_its_folder() -> None:
    by_role = info(configs={"target": {**LAGUNA, **FP8_KV}, "draft": DRAFT})
    folders = {model["role"]: model["name"] for model in by_role["models"]}
    by_folder = info(configs={folders["target"]: {**LAGUNA, **FP8_KV}, folders["draft"]: DRAFT, "other": {}})
    assert by_folder["budget"] == by_role["budget"]


def test_an_engine_that_disagrees_is_said_to() -> None:
    found = info(measured={"kv_tokens": 200_000})
    assert any("none of the estimates" in note for note in found["notes"])


@pytest.mark.parametrize("bad", [{"kv_tokens": "many"}, {"kv_tokens": True}, {"kv_tokens": -1}, {}])
def test_a_figure_that_is_none_changes_nothing(bad: dict[str, Any]) -> None:
    assert info(measured=bad)["budget"] == info()["budget"]


def test_another_report_of_one_spark_agrees_with_the_arithmetic() -> None:
    """926,683 tokens in 32.44 GiB on one node: FP8 KV, draft of six layers, vLLM's default of 2,048 tokens a step."""
    changes = {"serve.kv_cache_memory_bytes": int(32.44 * GIB), "serve.max_num_batched_tokens": 2048}
    tokens = row(info("poolside--Laguna-S-2.1-NVFP4", overrides=changes), "tokens in the KV pool")["value"]
    assert tokens == pytest.approx(926_683, rel=2e-4)


def test_the_beds_engine_reports_what_was_estimated() -> None:
    """vLLM 0.25.1 on two nodes said 310,670 tokens and 606.78 contexts of 512 tokens."""
    found = info("dgx-spark--Laguna-Chain-Tiny")
    assert row(found, "tokens in the KV pool")["value"] == 310_670
    assert round(row(found, "full contexts")["value"], 2) == 606.78


def test_a_card_that_does_not_fit_the_node_is_refused_with_the_table() -> None:
    one_node = {"parallel.tensor_parallel_size": 1, "nodes.min": 1, "serve.kv_cache_memory_bytes": "12G"}
    found = faults(overrides=one_node, node_memory_bytes=SPARK)
    assert {problem.path for problem in found} == {"storage_size.in_bytes"}
    text = found[0].allowed
    for line in ("weights of a rank", "KV pool of a rank", "reserve for the system", "112.69 GiB", "121.00 GiB"):
        assert line in text


def test_memory_between_the_bounds_is_a_warning() -> None:
    found = info(overrides={"memory.head": None, "memory.worker": None}, node_memory_bytes=80 * GIB)
    assert found["fits"] is None
    assert any("tight" in warning for warning in found["warnings"])
    assert "may fit on two nodes" in found["verdict"]


def test_caps_and_reserve_beyond_the_node_are_refused_with_the_sum() -> None:
    assert info(node_memory_bytes=SPARK)["fits"] is True
    found = faults(node_memory_bytes=115 * GIB)
    assert {problem.path for problem in found} == {"memory.head", "memory.worker"}
    head = next(problem for problem in found if problem.key == "head")
    assert "98.00 GiB + 12.00 GiB + 6.00 GiB = 116.00 GiB" in head.allowed
    # Without Ray the driver is one of the ranks.
    mp = {"parallel.distributed_executor_backend": "mp", "memory.worker": None}
    info(overrides=mp, node_memory_bytes=115 * GIB)


def test_required_disk_is_target_and_draft() -> None:
    assert info()["required"]["disk_bytes"] == 121_000_000_000 + 880_468_296
    assert info()["required"]["memory_bytes"] == row(info(), "needed on the fullest node")["high"]


STACKS: list[tuple[dict[str, Any], dict[str, Any], int, int]] = [
    # Full attention only, 16 bits: 32 layers x 2 x 8 x 128 x 2 bytes a token.
    ({}, {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096},
     32 * 2 * 8 * 128 * 2, GIB // (32 * 2 * 8 * 128 * 2 * 16) * 16),
    # MLA: one latent of 576 for all heads.
    ({}, {"num_hidden_layers": 60, "num_attention_heads": 128, "hidden_size": 7168, "kv_lora_rank": 512,
          "qk_rope_head_dim": 64}, 60 * 576 * 2, GIB // (60 * 576 * 2 * 16) * 16),
    # FP8 by the flag.
    ({"serve.kv_cache_dtype": "fp8"}, {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096},
     32 * 2 * 32 * 128, GIB // (32 * 2 * 32 * 128 * 16) * 16),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "config", "token_bytes", "tokens"), STACKS)
def test_stacks_of_one_kind(
    tmp_path: Path, changes: dict[str, Any], config: dict[str, Any], token_bytes: int, tokens: int
) -> None:
    src = own(tmp_path, {"serve.kv_cache_memory_bytes": GIB, "serve.max_model_len": 1024, **changes})
    found = info(src, configs={"target": config})
    assert row(found, "KV of a token and rank")["value"] == token_bytes
    assert row(found, "tokens in the KV pool")["value"] == pytest.approx(tokens, abs=16)


HYBRID = {"text_config": {
    "num_hidden_layers": 60, "full_attention_interval": 4, "num_attention_heads": 32, "num_key_value_heads": 2,
    "head_dim": 256, "hidden_size": 4096, "linear_num_key_heads": 16, "linear_num_value_heads": 64,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
}}  # fmt: skip


def test_states_of_linear_attention_cut_the_blocks(tmp_path: Path) -> None:
    src = own(tmp_path, {"serve.kv_cache_memory_bytes": 2 * GIB, "serve.max_model_len": 32768, "quantization": "bf16"})
    found = info(src, configs={"target": HYBRID})
    # A state is (2 x 16 x 128 + 64 x 128) x 3 x 2 bytes and 64 x 128 x 128 numbers of two or four bytes: a block of
    # 1,072 or 2,096 tokens holds it, beside 2 x 2 x 256 x 2 bytes of KV a token.
    conv, recurrent = (2 * 16 * 128 + 64 * 128) * 3 * 2, 64 * 128 * 128
    blocks = [16 * -(-(conv + width * recurrent) // (16 * 2048)) for width in (2, 4)]
    assert blocks == [1072, 2096]
    expected = [2 * GIB // (block * 2048 * 15) / (-(-32768 // block) + 3) * 32768 for block in blocks]
    tokens = row(found, "tokens in the KV pool")
    assert (tokens["low"], tokens["high"]) == (int(min(expected)), int(max(expected)))


def test_without_the_states_size_there_is_an_upper_bound_only() -> None:
    found = info("Qwen--Qwen3.6-27B-FP8")
    tokens = row(found, "tokens in the KV pool")
    assert tokens["low"] is None
    assert tokens["high"] > 0
    assert "at most" in found["budget_text"]


def test_what_cannot_be_derived_is_said_to_be_unknown(tmp_path: Path) -> None:
    for src in ("deepseek-ai--DeepSeek-V4-Flash", own(tmp_path, {})):
        found = info(src)
        assert row(found, "tokens in the KV pool")["high"] is None
        assert "not known" in found["budget_text"]


CONFIGS: list[Any] = [
    {}, {"num_hidden_layers": 0}, {"num_hidden_layers": "48"}, {"num_hidden_layers": True},
    {"num_hidden_layers": 48, "layer_types": ["strange"] * 48},
    {"num_hidden_layers": 48, "layer_types": ["full_attention"]}, {"text_config": 5}, {"quantization_config": []},
    {"num_hidden_layers": 10**9, "num_attention_heads": 1, "hidden_size": 1},
    {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 64, "compress_ratios": [1]},
    {"num_hidden_layers": 4, "layer_types": ["sliding_attention"] * 4, "num_attention_heads": 4, "hidden_size": 64},
    {"quantization_config": {"kv_cache_scheme": {"num_bits": "8"}, "config_groups": [1], "quantization": 5}},
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS)
def test_a_config_of_any_shape_is_no_traceback(config: Any) -> None:
    for configs in ({"target": config}, {"draft": config}, {"target": config, "draft": config}):
        outcomes: list[Any] = []
        try:
            outcomes = info(configs=configs)["budget"]
        except CardFaultError as err:
            outcomes = err.problems
        assert outcomes


def test_decode_context_parallel_divides_the_context(tmp_path: Path) -> None:
    base = {"parallel.tensor_parallel_size": 2, "serve.enforce_eager": True, "serve.kv_cache_memory_bytes": 9 * GIB,
            "serve.max_model_len": 65_536}  # fmt: skip
    config = {"num_hidden_layers": 60, "num_attention_heads": 128, "hidden_size": 7168, "kv_lora_rank": 576}
    one = info(own(tmp_path, base), configs={"target": config})
    two = info(own(tmp_path, {**base, "parallel.decode_context_parallel_size": 2}), configs={"target": config})
    assert row(two, "full contexts")["value"] == pytest.approx(2 * row(one, "full contexts")["value"])


def test_the_table_is_text_with_a_line_a_row() -> None:
    found = info()
    lines = found["budget_text"].splitlines()
    assert len(lines) == len(found["budget"])
    assert found["budget_text"] == table(found["budget"])
    assert gib(5 * GIB) == "5.00 GiB"
    assert table([]) == ""
