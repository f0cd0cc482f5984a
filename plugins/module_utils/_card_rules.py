# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Relations between the fields of a card: pairing of target and draft, division, batch budget, extra arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ._card_check import Check
from ._card_fields_public import METHODS_MTP, METHODS_NEED_DRAFT, METHODS_OWN_DRAFT
from ._card_layout import Layout
from ._card_precision import PRECISION_WORDS, of_config, of_name
from ._card_schema import KNOWN_VLLM, fields, serve_flags

FIXED_NCCL = (2, 30, 7)
DEFAULT_NUM_SEQS = 256
DEEP = 8
BATCH_FLOOR = 8192
BATCH_BASE = 2048

# Flags of `vllm serve` that the collection gives itself, or that would say again what a field says.
OURS = {
    "--speculative-config": "runtime.vllm_spec_method and [speculative]",
    "--spec-method": "runtime.vllm_spec_method",
    "--spec-model": "runtime.vllm_spec_draft_repo",
    "--spec-tokens": "runtime.vllm_spec_num_tokens",
    "--enable-auto-tool-choice": "runtime.vllm_tool_call_parser",
    "--model": "model_id",
    "--revision": "source_revision",
    "--host": "the inventory",
    "--port": "the inventory",
    "--api-key": "the inventory's vault",
    "--hf-token": "the inventory's vault",
    "--config": "the card itself",
    "--headless": "[parallel]",
    "--nnodes": "[nodes]",
    "--node-rank": "[nodes]",
    "--master-addr": "[nodes]",
    "--master-port": "parallel.master_port",
}
SHORT = {
    "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
    "-dcp": "--decode-context-parallel-size", "-ep": "--enable-expert-parallel", "-q": "--quantization",
    "-cc": "--compilation-config", "-O": "--optimization-level", "-sc": "--speculative-config", "-n": "--nnodes",
    "-r": "--node-rank", "-dpb": "--data-parallel-backend",
}  # fmt: skip
# Whole flags that are the beginning of one with a field.
WHOLE = {"--tokenizer"}

RESERVED_ENV = {
    "VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE", "RAY_ADDRESS", "RAY_memory_monitor_refresh_ms", "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN_PATH", "PATH", "HOME", "VLLM_RPC_BASE_PATH", "VLLM_CONFIG_ROOT", "VLLM_CACHE_ROOT",
}  # fmt: skip
_SECRET = re.compile(r"(API_?KEY|_TOKEN|PASSWORD|SECRET)$", re.IGNORECASE)

# Keys of vLLM 0.25.1's speculative config, beside the four that the card's own fields give.
SPEC_KEYS = {
    "enforce_eager", "draft_tensor_parallel_size", "quantization", "moe_backend", "attention_backend",
    "max_model_len", "code_revision", "disable_padded_drafter_batch", "use_local_argmax_reduction",
    "use_heterogeneous_vocab", "prompt_lookup_max", "prompt_lookup_min", "parallel_drafting",
    "num_speculative_tokens_per_batch_size", "suffix_decoding_max_tree_depth",
    "suffix_decoding_max_cached_requests", "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob",
    "draft_load_config", "rejection_sample_method", "synthetic_acceptance_rates", "synthetic_acceptance_length",
    "draft_sample_method",
}  # fmt: skip
_OWN_SPEC_KEYS = {
    "method": "runtime.vllm_spec_method",
    "num_speculative_tokens": "runtime.vllm_spec_num_tokens",
    "model": "runtime.vllm_spec_draft_repo",
    "revision": "runtime.vllm_spec_draft_revision",
}


class Card:
    """Checked values with the defaults of the table behind them."""

    def __init__(self, result: Check, configs: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.result = result
        self.values = result.values
        self.configs = configs or {}

    def get(self, path: str) -> Any:
        return self.values[path] if path in self.values else fields()[path].default

    def bad(self, path: str, words: str, given: Any = None, nearest: str = "") -> None:
        table, _dot, key = path.rpartition(".")
        self.result.bad(table, key, self.values.get(path) if given is None else given, words, nearest)


def pairing(card: Card) -> None:
    """Target, method and draft belong together."""
    method, depth = card.get("runtime.vllm_spec_method"), card.get("runtime.vllm_spec_num_tokens")
    draft, revision = card.get("runtime.vllm_spec_draft_repo"), card.get("runtime.vllm_spec_draft_revision")
    config = card.get("speculative.config")
    if depth is not None and method is None:
        card.bad("runtime.vllm_spec_num_tokens", "only together with vllm_spec_method")
    if method in METHODS_NEED_DRAFT and draft is None:
        words = f"{method} together with vllm_spec_draft_repo: its draft is a model of its own"
        card.bad("runtime.vllm_spec_method", words)
    if method in ("ngram", "ngram_gpu") and depth is None:
        card.bad("runtime.vllm_spec_method", f"{method} together with vllm_spec_num_tokens: it has no default depth")
    if draft is not None and method not in METHODS_OWN_DRAFT:
        reason = "mtp's drafter lives in the target's checkpoint" if method in METHODS_MTP else "this one has none"
        card.bad("runtime.vllm_spec_draft_repo", "only with a method that has a draft of its own: "
                 + ", ".join(METHODS_OWN_DRAFT) + (f" ({reason})" if method else ""))  # fmt: skip
    if revision is not None and draft is None:
        card.bad("runtime.vllm_spec_draft_revision", "only together with vllm_spec_draft_repo")
    if draft is not None and method != "dspark" and draft in (card.get("model_id"), card.get("source_repository")):
        card.bad("runtime.vllm_spec_draft_repo", "another repository than the target's")
    if config and method is None:
        card.bad("speculative.config", "only together with runtime.vllm_spec_method")
    for key in config:
        if key in _OWN_SPEC_KEYS:
            card.result.bad("speculative.config", key, config[key], f"a further key: this one is {_OWN_SPEC_KEYS[key]}")
        elif key not in SPEC_KEYS and card.result.engine == KNOWN_VLLM:
            card.result.bad("speculative.config", key, config[key],
                            f"a key of vLLM {KNOWN_VLLM}, which refuses others; a card for a later release says so in "
                            "engine.vllm", card.result.near(key, SPEC_KEYS))  # fmt: skip
    if draft is not None:
        precision(card, draft)


def precision(card: Card, draft: str) -> None:
    """A draft predicts the very numbers of its target: one trained for another precision is accepted nowhere."""
    source = card.get("source_repository") or card.get("model_id") or ""
    target = (
        of_name(source) or of_name(card.get("model_id") or "") or PRECISION_WORDS.get(card.get("quantization").lower())
    )
    if target is None and card.configs.get("target"):
        target = of_config(card.configs["target"]) or "BF16"
    said = card.get("speculative.trained_for")
    folder = card.get("speculative.draft_folder") or ""
    found = said or of_name(draft) or of_name(folder) or of_config(card.configs.get("draft") or {})
    if found is None or target is None:
        who = "draft" if found is None else "target"
        card.result.notes.append(f"the precision of the {who} is not known from names: acceptance will tell")
    elif found != target:
        path = "speculative.trained_for" if said else "runtime.vllm_spec_draft_repo"
        card.bad(path, f"a draft for {target}, as the target {source} is; this one is {found}. A draft trained for "
                 f'{target} all the same says speculative.trained_for = "{target}"')  # fmt: skip


def backends(card: Card) -> None:
    """Tasks, backends, remote code."""
    tasks = card.get("tasks")
    if tasks is not None and "TextGeneration" not in tasks:
        card.bad("tasks", "TextGeneration among them: nothing else is served here", given=", ".join(tasks) or "none")
    if card.get("trust_remote_code") is None:
        card.result.notes.append("trust_remote_code: not given, so code of the repository does not run")
    tags = card.get("placement.compatible_backends")
    if tags is not None and "vllm-cuda" not in tags:
        card.bad("placement.compatible_backends", "vllm-cuda among them", given=", ".join(tags) or "none")
    if card.get("runtime.vllm_spec_method") == "dflash" and "vllm-rocm" in (tags or []):
        card.bad("placement.compatible_backends", "no vllm-rocm with dflash: its kernels are compiled through NVRTC",
                 given=", ".join(tags))  # fmt: skip
    calls, parser = card.get("tooling.supports_tool_calling"), card.get("runtime.vllm_tool_call_parser")
    if calls and parser is None:
        card.result.notes.append(
            "tooling.supports_tool_calling: no runtime.vllm_tool_call_parser, so tool calls stay text"
        )
    if calls is False and parser is not None:
        card.result.notes.append("runtime.vllm_tool_call_parser: ignored, tooling.supports_tool_calling is false")


def batch_budget(depth: int | None, num_seqs: int | None, batched: int | None) -> int | None:
    """The depth rule: the value of --max-num-batched-tokens, None where the flag is absent.

    vLLM takes a slot for each drafted token but the first, for each request, out of the tokens of a step.
    """
    if batched is not None or depth is None or depth < DEEP:
        return batched
    return max(BATCH_FLOOR, BATCH_BASE + (num_seqs or DEFAULT_NUM_SEQS) * (depth - 1))


def batching(card: Card) -> None:
    """A step has to have room for tokens beside the draft's slots."""
    depth = card.get("runtime.vllm_spec_num_tokens")
    given, seqs = card.get("serve.max_num_batched_tokens"), card.get("serve.max_num_seqs")
    batched = batch_budget(depth, seqs, given)
    if batched is None or depth is None:
        return
    count = seqs or DEFAULT_NUM_SEQS
    left = batched - (depth - 1) * count
    sums = f"{batched} - ({depth} - 1) * {count} = {left}"
    if left <= 0:
        card.bad("serve.max_num_batched_tokens", f"more than {(depth - 1) * count}: tokens of a step are {sums}")
    elif left < BATCH_FLOOR:
        card.result.notes.append(
            f"tokens of a step beside the draft's slots: {sums}; vLLM advises {BATCH_FLOOR} or more"
        )


def graphs(card: Card, layout: Layout) -> None:
    """Replaying CUDA graphs across nodes hangs with an old NCCL."""
    release = tuple(int(part) for part in card.get("engine.nccl").split("."))
    config = card.get("serve.compilation_config") or {}
    eager = card.get("serve.enforce_eager") or config.get("cudagraph_mode") == "NONE"
    if layout.nodes > 1 and release < FIXED_NCCL and not eager:
        wanted = ".".join(map(str, FIXED_NCCL))
        card.bad("serve.enforce_eager", f"true on several nodes with NCCL {card.get('engine.nccl')}: replaying CUDA "
                 f"graphs across nodes hangs below {wanted} (or engine.nccl = \"{wanted}\")",
                 given=bool(card.get("serve.enforce_eager")))  # fmt: skip
    if card.get("serve.enforce_eager") and config:
        card.result.notes.append("serve.compilation_config: enforce_eager switches most of it off")


def stack(card: Card) -> None:
    """Counts of layers by kind are counts of all layers."""
    kinds = [card.get(f"architecture.{kind}_attention_layers") for kind in ("full", "sliding", "linear")]
    if kinds[0] is None or card.get("n_layers") is None:
        return
    total = sum(kind or 0 for kind in kinds)
    if total != card.get("n_layers"):
        words = f"counts of kinds that make n_layers {card.get('n_layers')}; they make {total}"
        card.bad("architecture.full_attention_layers", words)


def context(card: Card) -> None:
    length, known = card.get("serve.max_model_len"), card.get("context_length")
    longer = "VLLM_ALLOW_LONG_MAX_MODEL_LEN" in card.get("environment.all")
    if length and known and length > known and not card.get("serve.hf_overrides") and not longer:
        card.bad(
            "serve.max_model_len", f"at most the model's context_length of {known}, or hf_overrides that extend it"
        )


def environment(card: Card) -> None:
    """Variables of a machine's fabric, of the units and secrets have their own source."""
    for scope in ("all", "head", "worker"):
        for name in card.get(f"environment.{scope}"):
            if name in RESERVED_ENV:
                words = "no variable that the fabric and the units set on each node"
            elif _SECRET.search(name):
                words = "no secret: it comes from the inventory's vault"
            else:
                continue
            card.result.bad(f"environment.{scope}", name, name, words)


def extra_arguments(card: Card) -> None:
    """Verbatim arguments may not say again what a field says."""
    extra = card.get("extra_args")
    owned = {**serve_flags(), **OURS}
    if extra and not extra[0].startswith("-"):
        card.bad("extra_args", "a flag first", given=extra[0])
    for word in extra:
        if not word.startswith("-") or re.fullmatch(r"-\d.*", word):
            continue
        flag = word.split("=")[0].split(".")[0]
        glued = "" if flag.startswith("--") or flag in SHORT else flag[:2]
        flag = SHORT.get(flag) or SHORT.get(glued) or flag.replace("_", "-")
        # vLLM's parser takes any unambiguous beginning of a flag.
        hit = flag if flag in owned else ""
        if not hit and len(flag) > 2 and flag not in WHOLE:
            hit = next((name for name in owned if name.startswith(flag)), "")
        if hit:
            card.bad("extra_args", f"no flag that the card can say itself: {hit} is {owned[hit]}", given=word)


RULES: tuple[Callable[[Card], None], ...] = (
    pairing, backends, batching, stack, context, environment, extra_arguments,
)  # fmt: skip
