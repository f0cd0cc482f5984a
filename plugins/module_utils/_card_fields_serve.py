# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Flags of `vllm serve` that have a field of their own. Choices were read in vLLM 0.25.1."""

from __future__ import annotations

from typing import Any

from ._card_schema import Field

KV_DTYPES = (
    "auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "turboquant_k8v4",
    "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "int4_per_token_head", "int8_per_token_head",
    "fp8_per_token_head", "nvfp4",
)  # fmt: skip
QUANTIZATIONS = (
    "awq", "auto_awq", "fp8", "fbgemm_fp8", "fp_quant", "modelopt", "modelopt_fp4", "modelopt_mxfp8",
    "modelopt_mixed", "auto_gptq", "gptq", "gptq_marlin", "awq_marlin", "humming", "compressed-tensors",
    "bitsandbytes", "experts_int8", "quark", "moe_wna16", "torchao", "inc", "mxfp4", "gpt_oss_mxfp4",
    "deepseek_v4_fp8", "online", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel",
    "int8_per_channel_weight_only", "mxfp8",
)  # fmt: skip
LOAD_FORMATS = (
    "auto", "hf", "bitsandbytes", "dummy", "fastsafetensors", "instanttensor", "mistral", "modelexpress", "npcache",
    "pt", "runai_streamer", "runai_streamer_sharded", "safetensors", "sharded_state", "tensorizer",
)  # fmt: skip
ATTENTION_BACKENDS = (
    "FLASH_ATTN", "FLASH_ATTN_DIFFKV", "TRITON_ATTN", "TRITON_ATTN_DIFFKV", "FLASHINFER", "FLASHINFER_MLA",
    "TOKENSPEED_MLA", "FLASHINFER_MLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM120", "TRITON_MLA", "CUTLASS_MLA", "FLASHMLA",
    "FLASHMLA_SPARSE", "FLASHMLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV4", "FLASH_ATTN_MLA",
    "FLASH_ATTN_MLA_SPARSE", "MINIMAX_M3_SPARSE", "FLEX_ATTENTION", "TURBOQUANT", "CPU_ATTN",
)  # fmt: skip
MOE_BACKENDS = (
    "auto", "triton", "deep_gemm", "deep_gemm_mega_moe", "cutlass", "flashinfer_trtllm", "flashinfer_cutlass",
    "flashinfer_cutedsl", "flashinfer_b12x", "marlin", "humming", "triton_unfused", "hpc", "emulation",
)  # fmt: skip
LINEAR_BACKENDS = (
    "auto", "cutlass", "flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_trtllm", "flashinfer_cudnn",
    "flashinfer_b12x", "marlin", "humming", "triton", "deep_gemm", "torch", "machete", "fbgemm", "conch", "exllama",
    "emulation",
)  # fmt: skip


def _flag(name: str, kind: str, text: str, **more: Any) -> Field:
    return Field(f"serve.{name}", kind, text, flag="--" + name.replace("_", "-"), **more)


def _toggle(name: str, text: str) -> Field:
    """A switch whose default vLLM decides itself, so that false is said too."""
    return _flag(name, "bool", text, negative="--no-" + name.replace("_", "-"))


SERVE_FIELDS: list[Field] = [
    _flag("served_model_name", "str", "Name that clients ask for. Default: the last part of model_id, in lower case.",
          pattern=r"[^\s/][^\s]*", shape="a name without spaces"),
    _flag("runner", "str", "What the model is run as.", choices=("auto", "generate")),
    _flag("tokenizer_mode", "str", "Tokenizer.",
          choices=("auto", "hf", "slow", "mistral", "deepseek_v32", "deepseek_v4")),
    _flag("dtype", "str", "Type of weights and activations that are not quantized.",
          choices=("auto", "half", "float16", "bfloat16", "float", "float32")),
    _flag("quantization", "str", "Quantization method, where config.json does not name it.", choices=QUANTIZATIONS),
    _flag("load_format", "str", "How weights are read.", choices=LOAD_FORMATS),
    _flag("safetensors_load_strategy", "str", "How safetensors files are read.",
          choices=("lazy", "eager", "prefetch", "torchao")),
    _flag("enforce_eager", "bool", "No CUDA graphs and no compilation."),
    _flag("compilation_config", "table", "vLLM's compilation config, verbatim."),
    _flag("max_cudagraph_capture_size", "int", "Largest batch a CUDA graph is captured for.", low=1, high=65_536),
    _flag("optimization_level", "int", "vLLM's optimization level.", low=0, high=3),
    _flag("max_model_len", "int", "Longest context served, in tokens.", low=1, high=1_000_000_000),
    _flag("gpu_memory_utilization", "float", "Share of the device's memory for the engine.", low=0.01, high=1.0),
    _flag("kv_cache_memory_bytes", "size", "KV pool of a rank; overrides the utilization.", low=1, high=2**53),
    _flag("kv_cache_dtype", "str", "Type of the KV cache.", choices=KV_DTYPES,
          later=("nvfp4_ds_mla", "nvfp4_fp8_ds_mla")),
    _flag("block_size", "int", "Tokens of a KV block.", low=1, high=65_536),
    _flag("mamba_cache_mode", "str", "How states of linear attention are cached.", choices=("all", "align", "none")),
    _flag("mamba_ssm_cache_dtype", "str", "Type of those states.", choices=("auto", "float32", "float16", "bfloat16")),
    _flag("max_num_seqs", "int", "Requests in a step.", low=1, high=65_536),
    _flag("max_num_batched_tokens", "int", "Tokens in a step.", low=1, high=100_000_000),
    _toggle("enable_prefix_caching", "Keep the KV of finished prompts."),
    _toggle("enable_chunked_prefill", "Divide long prompts."),
    _toggle("async_scheduling", "Schedule the next step while one runs."),
    _toggle("disable_hybrid_kv_cache_manager", "Treat windowed layers like full ones."),
    _flag("attention_backend", "str", "Attention kernels.", choices=ATTENTION_BACKENDS),
    _flag("moe_backend", "str", "Kernels of the experts.", choices=MOE_BACKENDS),
    _flag("linear_backend", "str", "Kernels of quantized layers.", choices=LINEAR_BACKENDS),
    _flag("all2all_backend", "str", "Exchange between experts.",
          choices=("naive", "pplx", "deepep_high_throughput", "deepep_low_latency", "allgather_reducescatter")),
    _toggle("enable_flashinfer_autotune", "Tune flashinfer's kernels at the start."),
    _flag("disable_custom_all_reduce", "bool", "Use NCCL's all-reduce only."),
    _flag("language_model_only", "bool", "Leave a vision part out."),
    _flag("limit_mm_per_prompt", "table", "Pictures and the like a prompt may hold."),
    _flag("mm_encoder_tp_mode", "str", "How a vision part is divided.", choices=("weights", "data")),
    _flag("chat_template", "str", "Chat template: a file on the node.", shape="a path",
          pattern=r"[^\x00-\x1f]+"),
    _flag("default_chat_template_kwargs", "table", "Arguments of the chat template where a request names none."),
    _flag("generation_config", "str", "Folder with generation_config.json, `auto` or `vllm`."),
    _flag("override_generation_config", "table", "Sampling defaults that win over the checkpoint's."),
    _flag("hf_overrides", "table", "Keys that replace those of config.json."),
    _flag("max_logprobs", "int", "Most log-probabilities a request may ask for; -1 means all.", low=-1, high=1_000_000),
    _flag("seed", "int", "Seed.", low=0, high=2**31 - 1),
    _flag("stream_interval", "int", "Tokens between two parts of a stream.", low=1, high=1_000_000),
    _flag("enable_prompt_tokens_details", "bool", "Tell cached prompt tokens in the usage."),
    _flag("enable_log_requests", "bool", "Log requests."),
    _flag("disable_log_stats", "bool", "No regular line of statistics."),
]  # fmt: skip
