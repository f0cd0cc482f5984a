# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Tokens that a KV pool holds, by vLLM's own arithmetic of layer groups (read in 0.25.1, v1/core/kv_cache_utils.py).

All layers of one kind make up groups of equally many layers; a block holds the pages of one group; a request needs
blocks of every group. Where the layers' kinds or the size of an element are not known, the answer is a range: one
result for each assumption that remains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

DEFAULT_BLOCK = 16
# Builds of the engine whose default differs.
VARIANT_BLOCK = {"cpu": 128}
DEFAULT_BATCHED = 8192

# Bytes of an element by --kv-cache-dtype. `nvfp4` packs two elements a byte and adds a byte for every sixteen.
ELEMENT_BYTES = {
    "float16": 2.0, "bfloat16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp8_inc": 1.0,
    "nvfp4": 0.5 + 1 / 16, "fp8_per_token_head": 1.0, "int8_per_token_head": 1.0, "int4_per_token_head": 0.5,
}  # fmt: skip
_TYPES = {"bfloat16": 2.0, "float16": 2.0, "half": 2.0, "float32": 4.0, "float": 4.0}


def cdiv(number: int, by: int) -> int:
    return -(-number // by)


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of one kind on one rank: full, sliding, or state (linear attention)."""

    kind: str
    count: int
    token_bytes: float = 0.0
    window: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """One set of assumptions and the layers that follow."""

    words: str
    layers: tuple[Layers, ...]


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a pool holds under one case."""

    words: str
    tokens: int
    contexts: float
    blocks: int
    per_request: int
    page: int
    group: int
    groups: str
    token_bytes: float


@dataclass(frozen=True, slots=True)
class Serving:
    """The numbers of the serve command that the arithmetic takes."""

    pool: int
    max_len: int
    batched: int = DEFAULT_BATCHED
    block: int = DEFAULT_BLOCK
    context_ranks: int = 1
    depth: int = 0


def merge(layers: tuple[Layers, ...]) -> list[Layers]:
    """Layers with the same specification are one kind, whether of the target or of the draft."""
    found: dict[Layers, int] = {}
    for item in layers:
        if item.count:
            key = replace(item, count=0)
            found[key] = found.get(key, 0) + item.count
    return [replace(key, count=count) for key, count in found.items()]


def capacity(case: Case, serving: Serving) -> Capacity | None:
    """Blocks, contexts and tokens of a pool, or None where no layer keeps KV."""
    kinds = merge(case.layers)
    attention = [item for item in kinds if item.kind != "state"]
    if not attention:
        return None
    states = [item for item in kinds if item.kind == "state"]
    block = serving.block
    for item in states:
        # vLLM raises the block until a page holds a whole state.
        per_token = max(layer.token_bytes for layer in attention)
        block = max(block, DEFAULT_BLOCK * cdiv(item.state_bytes, int(DEFAULT_BLOCK * per_token) or 1))
    page = max(int(item.token_bytes * block) for item in attention)
    if page < 1:
        return None
    if len({item.kind for item in kinds}) == 1 and not states and attention[0].kind == "full":
        # One kind only: one group of all layers, whatever their page sizes.
        page = sum(int(item.token_bytes * block) * item.count for item in attention)
        sizes = [(item, block, 1) for item in attention[:1]]
        group = 1
    else:
        smallest, largest = min(item.count for item in kinds), max(item.count for item in kinds)
        group = largest if largest < smallest * 1.5 else smallest
        sizes = []
        for item in kinds:
            own = int(item.token_bytes * block) or page
            tokens = block * (page // own) if page % own == 0 else block
            sizes.append((item, tokens, cdiv(item.count, group)))
    blocks = serving.pool // (page * group) if page else 0
    per_request = sum(count * _needed(item, tokens, serving) for item, tokens, count in sizes)
    contexts = blocks / per_request
    words = ", ".join(f"{count} x {item.kind}" for item, _tokens, count in sizes)
    total = sum(item.token_bytes * item.count for item in attention if item.kind == "full")
    return Capacity(
        case.words, int(contexts * serving.max_len), contexts, blocks, per_request, page, group, words, total
    )


def _needed(item: Layers, block: int, serving: Serving) -> int:
    """Blocks that one request of full length takes in one group."""
    if item.kind == "state":
        return 1 + serving.depth
    if item.kind == "sliding":
        return cdiv(min(item.window - 1 + serving.batched, serving.max_len), block) + 1
    return cdiv(serving.max_len, block * serving.context_ranks)


def element_sizes(
    dtype: str, config: Mapping[str, Any], quantized: bool, said: float | None
) -> list[tuple[float, str]]:
    """Bytes of a KV element, each with the assumption it rests on; more than one where config.json is not at hand."""
    if said is not None:
        return [(said, "as the card says")]
    if dtype in ELEMENT_BYTES:
        return [(ELEMENT_BYTES[dtype], f"kv_cache_dtype {dtype}")]
    if config:
        quantization = config.get("quantization_config")
        scheme = _scheme(quantization if isinstance(quantization, Mapping) else {})
        if scheme:
            return [(ELEMENT_BYTES[scheme], f"{scheme} by the checkpoint's quantization config")]
        name = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16").removeprefix("torch.")
        return [(_TYPES.get(name, 2.0), f"the model's type {name}")]
    if not quantized:
        return [(2.0, "a model that is not quantized")]
    return [(2.0, "KV in 16 bits"), (1.0, "KV in FP8 by the checkpoint's own scheme")]


def _scheme(quantization: Mapping[str, Any]) -> str:
    """The KV type that a quantization config asks for under --kv-cache-dtype auto."""
    inner = quantization.get("quantization")
    for place in (quantization, inner if isinstance(inner, Mapping) else {}):
        for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
            scheme = place.get(key)
            if isinstance(scheme, Mapping) and scheme.get("num_bits") in (4, 8):
                return "fp8" if scheme["num_bits"] == 8 else "nvfp4"
            if isinstance(scheme, str) and scheme.lower() in ("fp8", "nvfp4"):
                return scheme.lower()
    return ""
