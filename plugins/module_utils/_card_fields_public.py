# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Fields of a public card format that are kept as they are, so that its cards load here unchanged."""

from __future__ import annotations

from typing import Any

from ._card_schema import Field

REPOSITORY = r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"
REVISION = r"[0-9a-f]{40}"

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

# Methods of vLLM's speculative config. `mtp` and the other *_mtp names have their drafter in the target's checkpoint.
# `dspark` can go both ways.
METHODS_NEED_DRAFT = ("dflash", "eagle", "eagle3", "medusa", "mlp_speculator", "draft_model")
METHODS_OWN_DRAFT = (*METHODS_NEED_DRAFT, "dspark")
METHODS_MTP = (
    "mtp", "deepseek_mtp", "mimo_mtp", "mimo_v2_mtp", "glm4_moe_mtp", "glm4_moe_lite_mtp", "glm_ocr_mtp", "ernie_mtp",
    "nemotron_h_mtp", "exaone_moe_mtp", "exaone4_5_mtp", "qwen3_next_mtp", "qwen3_5_mtp", "longcat_flash_mtp",
    "minimax_m3_mtp", "bailing_hybrid_mtp", "pangu_ultra_moe_mtp", "step3p5_mtp", "hy_v3_mtp", "gemma4_mtp",
)  # fmt: skip
METHODS_NO_DRAFT = ("ngram", "ngram_gpu", "suffix", "extract_hidden_states", "custom_class")
METHODS = (*METHODS_OWN_DRAFT, *METHODS_MTP, *METHODS_NO_DRAFT)


def _public(path: str, kind: str, text: str, **more: Any) -> Field:
    return Field(path, kind, text, origin="public", **more)


PUBLIC_FIELDS: list[Field] = [
    _public("model_id", "str", "The model's id.", required=True, pattern=REPOSITORY, shape="owner/name"),
    _public(
        "source_repository",
        "str",
        "Where the weights come from, if not from the repository named like the model.",
        pattern=REPOSITORY,
        shape="owner/name",
    ),
    _public("source_revision", "str", "Commit of the weights.", pattern=REVISION, shape="40 hexadecimal digits"),
    _public("n_layers", "int", "Number of layers.", required=True, low=1, high=10_000),
    _public("hidden_size", "int", "Width of the hidden state.", required=True, low=1, high=1_000_000),
    _public("num_key_value_heads", "int", "Heads of keys and values.", low=1, high=100_000),
    _public("supports_tensor", "bool", "Whether the model can be divided; false means one node only.", required=True),
    _public("tasks", "strs", "What the model does; `TextGeneration` is what is served here.", required=True),
    _public("family", "str", "The model's family.", default=""),
    _public("quantization", "str", "Precision of the weights, for people and for the pairing rule.", default=""),
    _public("base_model", "str", "Name of the base model.", default=""),
    _public("capabilities", "strs", "text, thinking, thinking_toggle, vision, code and so on.", default=[]),
    _public(
        "context_length", "int", "Longest context in tokens; 0 means unknown.", default=0, low=0, high=1_000_000_000
    ),
    _public(
        "trust_remote_code",
        "bool",
        "Whether code of the repository may run. The flag is given only where the card says true itself.",
        flag="--trust-remote-code",
    ),
    _public(
        "storage_size.in_bytes",
        "int",
        "Bytes of everything that is staged for the target.",
        required=True,
        low=1,
        high=2**53,
    ),
    _public("reasoning.supports_toggle", "bool", "Whether reasoning can be switched in a request."),
    _public("reasoning.supports_budget", "bool", "Whether a request can bound the reasoning."),
    _public(
        "reasoning.format",
        "str",
        "How reasoning is marked.",
        choices=("none", "token_delimited", "channel_delimited"),
    ),
    _public("reasoning.default_effort", "str", "Effort where the request names none.", choices=EFFORTS),
    _public("reasoning.disabled_effort", "str", "Effort that means no reasoning.", choices=EFFORTS),
    _public("tooling.supports_tool_calling", "bool", "Whether the model calls tools."),
    _public("tooling.tool_call_format", "str", "Format of the calls."),
    _public("tooling.builtin_tools", "strs", "Tools that the other format's server has built in."),
    _public("placement.compatible_backends", "strs", "Backends; `vllm-cuda` has to be among them."),
    _public("placement.backend_preference", "strs", "Backends, best first."),
    _public("placement.min_vram_gib", "float", "Memory the model needs at least, in GiB.", low=0, high=1_000_000),
    _public("placement.max_context_tokens", "int", "Largest context to plan for.", low=1, high=1_000_000_000),
    _public("license.name", "str", "Name of the licence."),
    _public("license.display_name", "str", "Name of the licence as shown to people."),
    _public("license.spdx_id", "str", "SPDX identifier of the licence."),
    _public("license.url", "str", "Address of the licence."),
    _public("license.notice", "str", "Notice to keep with the weights."),
    _public("runtime.vllm_spec_method", "str", "Method of speculation.", choices=METHODS),
    _public(
        "runtime.vllm_spec_num_tokens",
        "int",
        "Depth: speculative tokens in a step. Absent means the default of the draft.",
        low=1,
        high=1024,
    ),
    _public("runtime.vllm_spec_draft_repo", "str", "Repository of the draft.", pattern=REPOSITORY, shape="owner/name"),
    _public(
        "runtime.vllm_spec_draft_revision",
        "str",
        "Commit of the draft.",
        pattern=REVISION,
        shape="40 hexadecimal digits",
    ),
    _public(
        "runtime.vllm_tool_call_parser",
        "str",
        "vLLM's parser of tool calls; naming one also gives --enable-auto-tool-choice.",
        pattern=r"[A-Za-z0-9_.-]+",
        shape="a name",
        flag="--tool-call-parser",
    ),
    _public(
        "runtime.vllm_reasoning_parser",
        "str",
        "vLLM's parser of reasoning.",
        pattern=r"[A-Za-z0-9_.-]+",
        shape="a name",
        flag="--reasoning-parser",
    ),
]
