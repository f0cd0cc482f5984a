# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The attention stack of a card's model on one rank: from config.json where it is at hand, else from the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._budget_kv import Case, Layers, element_sizes
from ._card_fields_public import METHODS_MTP
from ._card_layout import Layout
from ._card_precision import of_config, of_name
from ._card_rules import Card

KIND = {
    "full_attention": "full", "attention": "full", "global_attention": "full", "sliding_attention": "sliding",
    "local_attention": "sliding", "linear_attention": "state", "mamba": "state",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stack:
    """Counts of layers by kind, and the numbers behind a token's bytes."""

    counts: dict[str, int]
    kv_heads: int
    head_dim: int
    latent: int
    window: int
    states: tuple[int, ...]
    source: str


def _number(config: Mapping[str, Any], *keys: str) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40:
            return value
    return 0


def _from_config(config: Mapping[str, Any], tensor: int) -> Stack | None:
    text = config.get("text_config")
    inner = text if isinstance(text, Mapping) else config
    layers = _number(inner, "num_hidden_layers", "n_layer")
    heads = _number(inner, "num_attention_heads", "n_head")
    if not layers or layers > 10_000 or "compress_ratios" in inner:
        return None
    counts: dict[str, int] = {}
    types = inner.get("layer_types")
    interval = _number(inner, "full_attention_interval")
    window = _number(inner, "sliding_window")
    if isinstance(types, list) and len(types) == layers:
        for name in types:
            kind = KIND.get(str(name))
            if kind is None:
                return None
            counts[kind] = counts.get(kind, 0) + 1
    elif interval:
        counts = {"full": layers // interval, "state": layers - layers // interval}
    else:
        counts = {"full": layers}
    latent = _number(inner, "kv_lora_rank")
    if latent:
        latent += _number(inner, "qk_rope_head_dim")
    dim = _number(inner, "head_dim") or (_number(inner, "hidden_size", "n_embd") // heads if heads else 0)
    states = _states(inner, tensor) if counts.get("state") else ()
    if not (latent or dim) or (counts.get("state") and not states) or (counts.get("sliding") and not window):
        return None
    return Stack(counts, _number(inner, "num_key_value_heads") or heads, dim, latent, window, states, "config.json")


def _states(inner: Mapping[str, Any], tensor: int) -> tuple[int, ...]:
    """Bytes of a layer's state on a rank under gated delta nets: the recurrent part in 16 or in 32 bits."""
    key_heads, value_heads = _number(inner, "linear_num_key_heads"), _number(inner, "linear_num_value_heads")
    key_dim, value_dim = _number(inner, "linear_key_head_dim"), _number(inner, "linear_value_head_dim")
    kernel = _number(inner, "linear_conv_kernel_dim")
    if not (key_heads and value_heads and key_dim and value_dim and kernel):
        return ()
    conv = (2 * key_dim * key_heads + value_dim * value_heads) * (kernel - 1) * 2 // tensor
    recurrent = value_heads * key_dim * value_dim // tensor
    return conv + 2 * recurrent, conv + 4 * recurrent


def _from_card(card: Card) -> Stack | None:
    full = card.get("architecture.full_attention_layers")
    sliding = card.get("architecture.sliding_attention_layers") or 0
    state = card.get("architecture.linear_attention_layers") or 0
    if full is None:
        full = card.get("n_layers") - sliding - state
    dim, heads = card.get("architecture.head_dim"), card.get("num_key_value_heads")
    latent, window = card.get("architecture.kv_latent_dim") or 0, card.get("architecture.sliding_window") or 0
    if not (latent or (dim and heads)) or (sliding and not window) or full < 0:
        return None
    counts = {"full": full, "sliding": sliding, "state": state}
    return Stack({k: v for k, v in counts.items() if v}, heads or 1, dim or 0, latent, window, (), "card")


def stack(card: Card, layout: Layout) -> Stack | None:
    """The target's stack, or None where neither the card nor a config.json tells it."""
    config = card.configs.get("target")
    return (_from_config(config, layout.tensor) if config else None) or _from_card(card)


def _token(found: Stack, element: float, layout: Layout) -> float:
    """Bytes that a layer keeps of a token on a rank."""
    if found.latent:
        return found.latent * element
    # A rank keeps at least one head.
    return 2 * max(1, found.kv_heads // layout.tensor) * found.head_dim * element


def _layers(found: Stack, token: float, state: int, layout: Layout) -> tuple[Layers, ...]:
    counts = {kind: -(-count // layout.pipeline) for kind, count in found.counts.items()}
    rows = [Layers("full", counts.get("full", 0), token)]
    rows.append(Layers("sliding", counts.get("sliding", 0), token, window=found.window))
    rows.append(Layers("state", counts.get("state", 0), state_bytes=state))
    return tuple(row for row in rows if row.count)


def _draft(
    card: Card, layout: Layout, found: Stack, element: float, token: float
) -> list[tuple[tuple[Layers, ...], str]]:
    """Layers of the draft, for each reading of what is not known of it."""
    method = card.get("runtime.vllm_spec_method")
    config = card.configs.get("draft")
    own = _from_config(config, layout.tensor) if config else None
    if method is None:
        return [((), "")]
    count = card.get("architecture.draft_layers")
    if method in METHODS_MTP and count is None:
        target = card.configs.get("target") or {}
        inner = target.get("text_config") if isinstance(target.get("text_config"), Mapping) else target
        count = _number(inner or {}, "mtp_num_hidden_layers", "num_nextn_predict_layers") or 1
    if own and not own.counts.get("state"):
        total = sum(own.counts.values())
        width = 2 * max(1, own.kv_heads // layout.tensor) * own.head_dim * element
        if card.get("family") == "laguna" or "sliding" not in own.counts:
            # Laguna's DFlash keeps all of its KV even where it attends to a window.
            return [((Layers("full", total, width),), "")]
        return [(tuple(Layers(kind, number, width, own.window if kind == "sliding" else 0)
                       for kind, number in own.counts.items()), "")]  # fmt: skip
    if count is None:
        return (
            [((), "the draft's layers not counted")] if method not in ("ngram", "ngram_gpu", "suffix") else [((), "")]
        )
    full = (Layers("full", count, token),)
    if method in METHODS_MTP or card.get("family") == "laguna" or not found.window:
        return [(full, "")]
    window = (Layers("sliding", count, token, window=found.window),)
    return [(full, "a draft that keeps all KV"), (window, "a draft that keeps a window of KV")]


def cases(card: Card, layout: Layout, found: Stack) -> list[Case]:
    """Every reading of the stack that card and config.json leave open."""
    config = card.configs.get("target") or {}
    label = str(card.get("quantization") or "").lower()
    precision = of_config(config) or of_name(card.get("model_id")) or label
    quantized = str(precision).lower() not in ("", "bf16", "bfloat16", "fp16", "float16", "none")
    # A config.json that does not even tell the layers is not asked for the type of their KV.
    telling = found.source == "config.json" or isinstance(config.get("quantization_config"), Mapping)
    sizes = element_sizes(card.get("serve.kv_cache_dtype") or "auto", config if telling else {}, quantized,
                          card.get("architecture.kv_bytes"))  # fmt: skip
    rows = []
    for element, words in sizes:
        for state in found.states or (0,):
            token = _token(found, element, layout)
            layers = _layers(found, token, state, layout)
            state_words = f"states of {state} bytes" if len(found.states) > 1 else ""
            for extra, extra_words in _draft(card, layout, found, element, token):
                text = "; ".join(part for part in (words, state_words, extra_words) if part)
                rows.append(Case(text, layers + extra))
    return rows
