# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Eight deployments that owners run: each is said without extra_args, and rendered to the expected argument list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card import card_info

from tests.unit.plugins.module_utils.card_makers import CARDS

BASE = """
n_layers = 48
hidden_size = 4096
supports_tensor = true
tasks = ["TextGeneration"]
"""
QWEN = """
model_id = "nvidia/Qwen3.8-Flash-Next-NVFP4"
storage_size = { in_bytes = 126000000000 }
engine = { vllm = "0.33.0", nccl = "2.30.7" }
runtime = { vllm_spec_method = "mtp", vllm_spec_num_tokens = 3, vllm_tool_call_parser = "qwen3_coder" }
[speculative.config]
disable_eagle_block_drop = true
[parallel]
tensor_parallel_size = 2
[serve]
quantization = "modelopt"
kv_cache_dtype = "fp8_e4m3"
compilation_config = { cudagraph_mode = "FULL_DECODE_ONLY", cudagraph_capture_sizes = [1, 2, 4] }
default_chat_template_kwargs = { enable_thinking = false }
"""
DEEPSEEK = """
model_id = "deepseek-ai/DeepSeek-V4-Flash"
storage_size = { in_bytes = 160000000000 }
engine = { vllm = "0.33.0" }
[parallel]
tensor_parallel_size = 2
distributed_executor_backend = "mp"
[serve]
enforce_eager = true
tokenizer_mode = "deepseek_v4"
block_size = 256
"""
DSPARK = (
    DEEPSEEK
    + """kv_cache_dtype = "nvfp4_ds_mla"
[runtime]
vllm_spec_method = "dspark"
vllm_spec_num_tokens = 5
[speculative.config]
draft_sample_method = "probabilistic"
"""
)
MTP = (
    DEEPSEEK
    + """kv_cache_dtype = "nvfp4_ds_mla"
load_format = "instanttensor"
[runtime]
vllm_spec_method = "mtp"
vllm_spec_num_tokens = 2
"""
)
GLM = """
model_id = "nvidia/GLM-5.3-Flash-NVFP4"
storage_size = { in_bytes = 180000000000 }
engine = { vllm = "0.33.0" }
nodes = { min = 2, max = 4 }
[parallel]
tensor_parallel_size = 2
decode_context_parallel_size = 2
[layouts.4]
tensor_parallel_size = 4
decode_context_parallel_size = 1
[serve]
enforce_eager = true
[runtime]
vllm_reasoning_parser = "glm45"
"""

RAY2 = ["--distributed-executor-backend", "ray", "--tensor-parallel-size", "2"]
MP2 = ["--distributed-executor-backend", "mp", "--tensor-parallel-size", "2"]
END = ["--host", "0.0.0.0", "--port", "8000"]
DEEPSEEK_ARGS = [
    "/m/DeepSeek-V4-Flash", "--served-model-name", "deepseek-v4-flash", *MP2, "--tokenizer-mode", "deepseek_v4",
]  # fmt: skip
RANK0 = ["--nnodes", "2", "--node-rank", "0", "--master-addr", "192.168.100.1", "--master-port", "29501"]
INT4 = "Intel--Qwen3.5-397B-A17B-int4-AutoRound"


def int4(*division: str) -> list[str]:
    return [
        "/m/Qwen3.5-397B-A17B-int4-AutoRound", "--served-model-name", "qwen3.5-397b",
        "--distributed-executor-backend", "ray", *division, "--enforce-eager", "--max-model-len", "32768",
        "--gpu-memory-utilization", "0.9", "--kv-cache-memory-bytes", "2147483648", "--kv-cache-dtype", "fp8",
        "--max-num-seqs", "2", "--max-num-batched-tokens", "4096", "--language-model-only",
        "--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder", "--reasoning-parser", "qwen3", *END,
    ]  # fmt: skip


# Card (a bundled one's name, or text), nodes, expected arguments.
DEPLOYMENTS: dict[str, tuple[str, int, list[str]]] = {
    "Laguna S FP8 on two": ("poolside--Laguna-S-2.1-FP8", 2, [
        "/m/Laguna-S-2.1-FP8", "--served-model-name", "laguna-s-fp8", *RAY2, "--enforce-eager", "--max-model-len",
        "262144", "--gpu-memory-utilization", "0.85", "--kv-cache-memory-bytes", "5368709120", "--max-num-seqs", "2",
        "--max-num-batched-tokens", "8192", "--speculative-config",
        '{"method":"dflash","num_speculative_tokens":6,"model":"/m/Laguna-S-2.1-DFlash-W4A16"}', *END,
    ]),
    "Laguna S NVFP4 on one": ("poolside--Laguna-S-2.1-NVFP4", 1, [
        "/m/Laguna-S-2.1-NVFP4", "--served-model-name", "laguna-s-nvfp4", "--max-model-len", "262144",
        "--gpu-memory-utilization", "0.82", "--max-num-seqs", "4", "--max-num-batched-tokens", "8192",
        "--override-generation-config", '{"temperature":0.7,"top_p":0.95}', "--enable-auto-tool-choice",
        "--tool-call-parser", "poolside_v1", "--reasoning-parser", "poolside_v1", "--speculative-config",
        '{"method":"dflash","num_speculative_tokens":15,"model":"/m/Laguna-S-2.1-DFlash-NVFP4"}', *END,
    ]),
    "Qwen3.8 Flash NVFP4 on two": (QWEN, 2, [
        "/m/Qwen3.8-Flash-Next-NVFP4", "--served-model-name", "qwen3.8-flash-next-nvfp4", *RAY2, "--quantization",
        "modelopt", "--compilation-config",
        '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[1,2,4]}', "--kv-cache-dtype", "fp8_e4m3",
        "--default-chat-template-kwargs", '{"enable_thinking":false}', "--enable-auto-tool-choice",
        "--tool-call-parser", "qwen3_coder", "--speculative-config",
        '{"method":"mtp","num_speculative_tokens":3,"disable_eagle_block_drop":true}', *END,
    ]),
    "DeepSeek V4 Flash with dspark on two": (DSPARK, 2, [
        *DEEPSEEK_ARGS, "--enforce-eager", "--kv-cache-dtype", "nvfp4_ds_mla", "--block-size", "256",
        "--speculative-config",
        '{"method":"dspark","num_speculative_tokens":5,"draft_sample_method":"probabilistic"}', *RANK0, *END,
    ]),
    "DeepSeek V4 Flash with mtp on two": (MTP, 2, [
        *DEEPSEEK_ARGS, "--load-format", "instanttensor", "--enforce-eager", "--kv-cache-dtype", "nvfp4_ds_mla",
        "--block-size", "256", "--speculative-config", '{"method":"mtp","num_speculative_tokens":2}', *RANK0, *END,
    ]),
    "Qwen3.6 27B with dflash on one": ("Qwen--Qwen3.6-27B", 1, [
        "/m/Qwen3.6-27B", "--served-model-name", "qwen3.6-27b", "--max-model-len", "262144",
        "--gpu-memory-utilization", "0.7", "--max-num-seqs", "8", "--max-num-batched-tokens", "8192",
        "--language-model-only", "--default-chat-template-kwargs", '{"enable_thinking":false}',
        "--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder", "--reasoning-parser", "qwen3",
        "--speculative-config", '{"method":"dflash","num_speculative_tokens":15,"model":"/m/Qwen3.6-27B-DFlash"}', *END,
    ]),
    "Qwen3.5 397B int4 on two": (INT4, 2, int4("--tensor-parallel-size", "2")),
    "Qwen3.5 397B int4 on three": (INT4, 3, int4("--pipeline-parallel-size", "3")),
    "Qwen3.5 397B int4 on four": (INT4, 4, int4("--tensor-parallel-size", "4")),
    "GLM 5.3 Flash NVFP4 on two": (GLM, 2, [
        "/m/GLM-5.3-Flash-NVFP4", "--served-model-name", "glm-5.3-flash-nvfp4", *RAY2,
        "--decode-context-parallel-size", "2", "--enforce-eager", "--reasoning-parser", "glm45", *END,
    ]),
    "GLM 5.3 Flash NVFP4 on four": (GLM, 4, [
        "/m/GLM-5.3-Flash-NVFP4", "--served-model-name", "glm-5.3-flash-nvfp4", "--distributed-executor-backend",
        "ray", "--tensor-parallel-size", "4", "--enforce-eager", "--reasoning-parser", "glm45", *END,
    ]),
}  # fmt: skip


def info(card: str, nodes: int, folder: Path) -> dict[str, Any]:
    if "\n" in card:
        path = folder / "card.toml"
        path.write_text(BASE + card, encoding="utf-8")
        card = str(path)
    return card_info(
        card, [CARDS], models_root="/m", nodes=nodes, host="0.0.0.0", port=8000, master_addr="192.168.100.1"
    )


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_is_rendered_as_it_is_run(name: str, tmp_path: Path) -> None:
    card, nodes, expected = DEPLOYMENTS[name]
    found = info(card, nodes, tmp_path)
    assert found["serve_argv"] == expected
    assert found["nodes"]["count"] == found["devices"] == nodes
    assert found["card"]["extra_args"] == []


def test_ranks_of_mp_differ_in_rank_head_and_address_only(tmp_path: Path) -> None:
    found = info(DSPARK, 2, tmp_path)
    head, worker = found["rank_argv"]
    assert head == found["serve_argv"]
    assert found["executor"] == "mp"
    assert worker == [
        *("1" if at == head.index("--node-rank") + 1 else word for at, word in enumerate(head[:-4])),
        "--headless",
    ]
    assert worker[worker.index("--node-rank") + 1] == "1"
    assert worker[-1] == "--headless"
    assert "--host" not in worker
    assert [word for word in head if word not in worker] == ["0", "--host", "0.0.0.0", "--port", "8000"]


TYPED = (
    "<root>/Laguna-S-2.1-FP8 --served-model-name laguna-s-fp8 --distributed-executor-backend ray "
    "--tensor-parallel-size 2 --enforce-eager --max-model-len 262144 --gpu-memory-utilization 0.85 "
    "--kv-cache-memory-bytes 5368709120 --max-num-seqs 2 --max-num-batched-tokens 8192 --speculative-config"
)


def test_a_reader_of_the_recipe_finds_its_command() -> None:
    """The serve command of the reference deployment, as a person types it."""
    typed = TYPED.split()
    found = card_info("poolside--Laguna-S-2.1-FP8", [CARDS], models_root="<root>", host="0.0.0.0", port=8000)
    assert found["serve_argv"][: len(typed)] == typed
    assert found["serve_argv"][len(typed) + 1 :] == END
    assert found["caps"] == {"head": 98 * 2**30, "worker": 110 * 2**30, "driver": 12 * 2**30}
    assert found["ray_argv"]["head"] == ["--num-gpus=1", "--object-store-memory=2000000000"]
