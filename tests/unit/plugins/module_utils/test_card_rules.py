# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Relations between the fields of a card, each rule with its message."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_rules import RESERVED_ENV, batch_budget

from tests.unit.plugins.module_utils.card_makers import argv, normal, problem, problems, value

DFLASH = {"runtime.vllm_spec_method": "dflash", "runtime.vllm_spec_draft_repo": "owner/Model-DFlash"}
MTP = {"runtime.vllm_spec_method": "mtp", "runtime.vllm_spec_num_tokens": 2}
TWO = {"parallel.tensor_parallel_size": 2, "serve.enforce_eager": True}


def test_a_depth_needs_a_method() -> None:
    found = problem({"runtime.vllm_spec_num_tokens": 2})
    assert (found.path, found.given) == ("runtime.vllm_spec_num_tokens", 2)
    assert "vllm_spec_method" in found.allowed


@pytest.mark.parametrize("method", ["dflash", "eagle", "eagle3", "medusa", "draft_model"])
def test_a_method_with_a_draft_of_its_own_needs_it(method: str) -> None:
    found = problem({"runtime.vllm_spec_method": method, "runtime.vllm_spec_num_tokens": 3})
    assert (found.path, found.given) == ("runtime.vllm_spec_method", method)
    assert "vllm_spec_draft_repo" in found.allowed


@pytest.mark.parametrize("method", ["mtp", "qwen3_5_mtp", "ngram", "suffix"])
def test_a_draft_needs_a_method_that_takes_one(method: str) -> None:
    changes = {"runtime.vllm_spec_method": method, "runtime.vllm_spec_num_tokens": 3}
    found = problem({**changes, "runtime.vllm_spec_draft_repo": "owner/Draft"})
    assert (found.path, found.given) == ("runtime.vllm_spec_draft_repo", "owner/Draft")
    assert ("lives in the target's checkpoint" in found.allowed) is method.endswith("mtp")


def test_a_draft_without_any_method_is_refused() -> None:
    assert problem({"runtime.vllm_spec_draft_repo": "owner/Draft"}).path == "runtime.vllm_spec_draft_repo"


def test_dspark_goes_with_and_without_a_draft() -> None:
    for more in ({}, {"runtime.vllm_spec_draft_repo": "owner/Draft"}, {"runtime.vllm_spec_draft_repo": "owner/Model"}):
        normal({"runtime.vllm_spec_method": "dspark", "runtime.vllm_spec_num_tokens": 5, **more})


def test_dflash_without_a_depth_is_legal_and_a_revision_without_a_draft_is_not() -> None:
    assert value(argv(DFLASH), "--speculative-config") == '{"method":"dflash","model":"/m/Model-DFlash"}'
    found = problem({**MTP, "runtime.vllm_spec_draft_revision": "a" * 40})
    assert found.path == "runtime.vllm_spec_draft_revision"


def test_ngram_without_a_depth_is_refused() -> None:
    assert "no default depth" in problem({"runtime.vllm_spec_method": "ngram"}).allowed


def test_the_target_is_no_draft_of_itself() -> None:
    assert "another repository" in problem({**DFLASH, "runtime.vllm_spec_draft_repo": "owner/Model"}).allowed


PAIRS = [
    ("owner/M-FP8", "owner/M-DFlash-FP8", True),
    ("owner/M-FP8", "owner/M-DFlash-NVFP4", False),
    ("owner/M-NVFP4", "owner/M-DFlash-FP8", False),
    ("owner/M-NVFP4", "owner/M-DFlash-NVFP4", True),
    ("owner/M-FP8", "owner/M-DFlash-W4A16", False),
    ("owner/M-int4-AutoRound", "owner/M-DFlash-BF16", False),
    ("owner/M-INT4", "owner/M-DFlash-W4A16", True),
    ("owner/M-BF16", "owner/M_bf16_draft", True),
    ("owner/M-BF16", "owner/M-draft-fp8", False),
    # Where a name says nothing, there is a note instead.
    ("owner/M-FP8", "owner/Sparkulator", None),
    ("owner/M", "owner/M-DFlash-FP8", None),
]


@pytest.mark.parametrize(("target", "draft", "good"), PAIRS)
def test_target_and_draft_are_of_one_precision(target: str, draft: str, good: bool | None) -> None:
    changes = {**DFLASH, "model_id": target, "runtime.vllm_spec_draft_repo": draft}
    if good is False:
        found = problem(changes)
        assert found.path == "runtime.vllm_spec_draft_repo"
        assert target in found.allowed
        assert "speculative.trained_for" in found.allowed
    else:
        notes = normal(changes)[0].result.notes
        assert any("precision" in note for note in notes) is (good is None)


def test_the_precision_may_stand_in_the_folder_the_quantization_or_a_config() -> None:
    fp8 = {**DFLASH, "model_id": "owner/M-FP8", "runtime.vllm_spec_draft_repo": "owner/Sparkulator"}
    assert problem({**fp8, "speculative.draft_folder": "M-DFlash-W4A16"}).path == "runtime.vllm_spec_draft_repo"
    assert problem({**DFLASH, "quantization": "fp8", "runtime.vllm_spec_draft_repo": "owner/D-NVFP4"})
    groups = {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}
    packed = {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups}}
    nvfp4 = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    assert problem(fp8, configs={"draft": packed}).path == "runtime.vllm_spec_draft_repo"
    assert problem(fp8, configs={"draft": nvfp4})
    plain = {**DFLASH, "runtime.vllm_spec_draft_repo": "owner/D-FP8"}
    assert problem(plain, configs={"target": nvfp4})
    assert problem(plain, configs={"target": {"hidden_size": 1}})
    normal(plain, configs={"target": {"quantization_config": {"quant_method": "fp8"}}})
    # A draft whose config states nothing is as often as not a BF16 draft for a quantized target.
    normal(fp8, configs={"draft": {"hidden_size": 1}})


def test_who_knows_better_says_so_by_name() -> None:
    packed = {**DFLASH, "model_id": "owner/M-FP8", "speculative.draft_folder": "M-DFlash-W4A16"}
    normal({**packed, "speculative.trained_for": "FP8"})
    found = problem({**packed, "speculative.trained_for": "NVFP4"})
    assert found.path == "speculative.trained_for"


def test_dflash_and_rocm_are_an_error_and_cuda_is_needed() -> None:
    both = {"placement.compatible_backends": ["vllm-cuda", "vllm-rocm"]}
    normal(both)
    assert "NVRTC" in problem({**both, **DFLASH}).allowed
    assert problem({"placement.compatible_backends": ["mlx"]}).given == "mlx"
    assert problem({"placement.compatible_backends": []}).given == "none"


def test_other_tasks_are_refused_with_the_reason() -> None:
    found = problem({"tasks": ["TextToImage", "ImageToImage"]})
    assert found.given == "TextToImage, ImageToImage"
    assert "TextGeneration" in found.allowed
    normal({"tasks": ["TextToImage", "TextGeneration"]})


CHECK_VALUES = {**dict.fromkeys(range(1, 8)), 8: 8192, 15: 8192, 16: 8192, 25: 8192, 26: 8448, 32: 9984}


@pytest.mark.parametrize(("depth", "expected"), CHECK_VALUES.items())
def test_the_depth_rule_at_its_check_values(depth: int, expected: int | None) -> None:
    assert batch_budget(depth, None, None) == batch_budget(depth, 256, None) == expected
    given = value(argv({**DFLASH, "runtime.vllm_spec_num_tokens": depth}), "--max-num-batched-tokens")
    assert given == (None if expected is None else str(expected))


def test_the_depth_rule_takes_the_cards_own_numbers() -> None:
    deep = {**DFLASH, "runtime.vllm_spec_num_tokens": 15}
    assert value(argv({**deep, "serve.max_num_seqs": 1000}), "--max-num-batched-tokens") == str(2048 + 1000 * 14)
    assert value(argv({**deep, "serve.max_num_batched_tokens": 5000}), "--max-num-batched-tokens") == "5000"
    assert value(argv({**MTP, "serve.max_num_batched_tokens": 600}), "--max-num-batched-tokens") == "600"


# Seen in vLLM: what the scheduler had left, or that it refused.
SEEN = [(6, 2, 8192, 8182), (8, 2, 512, 498), (6, 256, 1024, None), (9, 256, 2048, None), (9, 256, 8192, 6144)]


@pytest.mark.parametrize(("depth", "seqs", "batched", "left"), SEEN)
def test_numbers_that_leave_no_budget_are_refused_with_the_sum(
    depth: int, seqs: int, batched: int, left: int | None
) -> None:
    changes = {**DFLASH, "runtime.vllm_spec_num_tokens": depth, "serve.max_num_seqs": seqs,
               "serve.max_num_batched_tokens": batched}  # fmt: skip
    if left is None:
        found = problem(changes)
        assert found.path == "serve.max_num_batched_tokens"
        assert f"{batched} - ({depth} - 1) * {seqs} = {batched - (depth - 1) * seqs}" in found.allowed
    else:
        assert any(f"= {left};" in note for note in normal(changes)[0].result.notes)


def test_graphs_across_nodes_need_a_newer_nccl() -> None:
    found = problem({"parallel.tensor_parallel_size": 2})
    assert (found.path, found.given) == ("serve.enforce_eager", False)
    assert "2.28.9" in found.allowed
    assert "2.30.7" in found.allowed
    normal({"parallel.tensor_parallel_size": 2, "engine.nccl": "2.30.7"})
    normal({"parallel.tensor_parallel_size": 2, "serve.compilation_config": {"cudagraph_mode": "NONE"}})
    normal(TWO)
    assert problem({"parallel.tensor_parallel_size": 2, "engine.nccl": "2.9.30"}).path == "serve.enforce_eager"
    assert problem({"parallel.tensor_parallel_size": 2, "parallel.distributed_executor_backend": "mp"})


def test_a_model_that_cannot_be_divided_stays_on_one_node() -> None:
    normal({"supports_tensor": False})
    found = problems({**TWO, "supports_tensor": False})
    assert [item.path for item in found] == ["supports_tensor"]
    assert "one node only" in found[0].allowed
    assert problems({"supports_tensor": False, "nodes.max": 2})[0].path == "nodes.max"


@pytest.mark.parametrize("name", sorted(RESERVED_ENV))
def test_variables_of_the_fabric_do_not_stand_in_a_card(name: str) -> None:
    found = problem({"environment.worker": {name: "1"}})
    assert (found.table, found.key) == ("environment.worker", name)


@pytest.mark.parametrize("text", ["", "auto", "010", "3"])
def test_a_gid_index_never_reaches_a_unit(text: str) -> None:
    assert problem({"environment.all": {"NCCL_IB_GID_INDEX": text}}).key == "NCCL_IB_GID_INDEX"


@pytest.mark.parametrize("name", ["VLLM_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MY_PASSWORD", "CLIENT_SECRET"])
def test_secrets_do_not_stand_in_a_card(name: str) -> None:
    found = problem({"environment.all": {name: "x"}})
    assert "secret" in found.allowed


def test_ordinary_variables_pass() -> None:
    normal({"environment.all": {"OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_MAX_TOKENS_PER_X": "2"}})


REPEATS = [
    ["--max-model-len", "5"], ["--max-model-len=5"], ["--max_model_len", "5"], ["--max_model_len=5"], ["-tp", "2"],
    ["-tp=2"], ["--host", "x"], ["--api-key", "x"], ["--speculative-config", "{}"],
    ["--speculative-config.method", "mtp"],
    ["--spec-method", "mtp"], ["--no-enable-prefix-caching"], ["--compilation-config.mode", "3"], ["--enforce-eag"],
    ["--seed", "1"], ["--swap-space", "1", "--port", "1"], ["--headless"], ["--model", "x"], ["--hf-token", "x"],
    ["--config", "x"], ["--trust-remote-code"], ["--enable-auto-tool-choice"], ["-O3"], ["-O", "3"],
]  # fmt: skip


@pytest.mark.parametrize("words", REPEATS)
def test_extra_arguments_may_not_say_what_a_field_says(words: list[str]) -> None:
    found = problem({"extra_args": words})
    assert found.path == "extra_args"
    assert found.given in words


def test_extra_arguments_stand_last_verbatim() -> None:
    extra = ["--tokenizer", "/m/t", "--swap-space", "-1", "--middleware", "a b", "--enable-lora", "%$\"'"]
    assert argv({"extra_args": extra})[-8:] == extra
    assert problem({"extra_args": ["model"]}).given == "model"


def test_further_speculative_keys() -> None:
    good = {**MTP, "speculative.config": {"draft_sample_method": "probabilistic", "moe_backend": "triton"}}
    assert value(argv(good), "--speculative-config") == (
        '{"method":"mtp","num_speculative_tokens":2,"draft_sample_method":"probabilistic","moe_backend":"triton"}'
    )
    found = problem({**MTP, "speculative.config": {"model": "x"}})
    assert "runtime.vllm_spec_draft_repo" in found.allowed
    typo = problem({**MTP, "speculative.config": {"draft_sample_methods": "greedy"}})
    assert typo.nearest == "draft_sample_method"
    normal({**MTP, "speculative.config": {"disable_eagle_block_drop": True}, "engine.vllm": "0.33.0"})
    assert problem({"speculative.config": {"draft_sample_method": "greedy"}}).path == "speculative.config"


def test_a_context_beyond_the_models_is_refused() -> None:
    long: dict[str, Any] = {"context_length": 1000, "serve.max_model_len": 1001}
    assert "1000" in problem(long).allowed
    normal({**long, "serve.hf_overrides": {"rope_parameters": {"rope_type": "yarn"}}})
    normal({**long, "context_length": 0})
    normal({**long, "environment.all": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}})


def test_the_values_that_the_parser_lets_through_are_refused_here() -> None:
    assert problem({"serve.gpu_memory_utilization": 1.5}).path == "serve.gpu_memory_utilization"
    assert problem({"parallel.distributed_executor_backend": "external_launcher"})
    assert problem({"parallel.distributed_executor_backend": "rya"}).nearest == "ray"
    assert problem({"serve.attention_backend": "FLASHATTN"}).nearest == "FLASH_ATTN"


def test_layers_by_kind_are_all_layers() -> None:
    normal({"architecture.full_attention_layers": 12, "architecture.sliding_attention_layers": 36})
    found = problem({"architecture.full_attention_layers": 12, "architecture.linear_attention_layers": 35})
    assert found.path == "architecture.full_attention_layers"
    assert "48" in found.allowed
    assert "47" in found.allowed


def test_code_of_the_repository_runs_only_where_the_card_says_so() -> None:
    assert "--trust-remote-code" in argv({"trust_remote_code": True})
    for said in (False, None):
        found, _layout, _all = normal({"trust_remote_code": said})
        assert "--trust-remote-code" not in argv({"trust_remote_code": said})
        assert any("does not run" in note for note in found.result.notes) is (said is None)
