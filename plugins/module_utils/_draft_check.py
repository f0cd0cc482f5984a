# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Whether a DFlash draft fits its target and will load, from its config.json and safetensors header alone.

Each fault is one that vLLM meets minutes later, after the target's weights were read, or never names at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from ._card_precision import of_config, of_name
from ._draft_quant import check_ignore, check_quantized
from ._safetensors import Header

CONFIG: Final = "config.json"
PROVENANCE: Final = "provenance.json"
_ANOTHER: Final = "take the draft that was made for this target"


class DraftFault(TypedDict):
    """What is wrong, in which file, and what to do."""

    file: str
    found: str
    expected: str
    cure: str


def draft_fault(file: str, found: str, expected: str, cure: str) -> DraftFault:
    """A fault; every part is a sentence fragment."""
    return DraftFault(file=file, found=found, expected=expected, cure=cure)


def architecture(config: Mapping[str, Any]) -> str:
    """The first architecture that the config names."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def is_laguna(config: Mapping[str, Any]) -> bool:
    """Whether it is the Laguna flavour, which vLLM holds to stricter rules than other DFlash drafts."""
    return architecture(config).startswith("DFlashLaguna")


def _int(value: Any) -> int | None:
    return value if type(value) is int else None


def _of_target(target: Mapping[str, Any], key: str) -> int | None:
    """A number of the target's config; multimodal configs keep the language model's in text_config."""
    inner = target.get("text_config")
    found = _int(target.get(key))
    return _int(inner.get(key)) if found is None and isinstance(inner, Mapping) else found


def _check_vocabulary(config: Mapping[str, Any], target: Mapping[str, Any]) -> list[DraftFault]:
    own = config.get("draft_vocab_size")
    wanted = _of_target(target, "vocab_size")
    if own is None and not is_laguna(config):
        own = config.get("vocab_size")
    if own is None:
        expected = f"draft_vocab_size {wanted}" if wanted else "draft_vocab_size, equal to the target's vocab_size"
        return [draft_fault(CONFIG, "no draft_vocab_size", expected, "add it: the draft uses the target's lm_head")]
    if wanted is not None and own != wanted:
        return [draft_fault(CONFIG, f"draft_vocab_size {own}", f"{wanted}, the target's vocab_size", _ANOTHER)]
    return []


def _check_layers(config: Mapping[str, Any]) -> list[DraftFault]:
    types, count = config.get("layer_types"), _int(config.get("num_hidden_layers"))
    if count is None or count < 1:
        found = f"num_hidden_layers {config.get('num_hidden_layers')!r}"
        return [draft_fault(CONFIG, found, "the number of the draft's layers", _ANOTHER)]
    if types is None and not is_laguna(config):
        return []
    cure = "write one attention flavour for each layer, all the same"
    if not isinstance(types, list):
        found = f"layer_types {types!r}"
        return [draft_fault(CONFIG, found, f"a list of {count} equal names", cure)]
    if len(types) != count:
        found = f"layer_types of length {len(types)}"
        return [draft_fault(CONFIG, found, f"num_hidden_layers of them ({count})", cure)]
    if is_laguna(config) and len({str(name) for name in types}) > 1:
        found = f"layer_types with {', '.join(sorted({str(name) for name in types}))}"
        return [draft_fault(CONFIG, found, "one flavour for all layers", cure)]
    return []


def target_layers(config: Mapping[str, Any]) -> list[int]:
    """The target's layers that the draft looks at; empty where the config does not say."""
    inner = config.get("dflash_config")
    ids = inner.get("target_layer_ids") if isinstance(inner, Mapping) else None
    return list(ids) if isinstance(ids, list) and ids and all(type(i) is int for i in ids) else []


def _check_dflash(config: Mapping[str, Any], target: Mapping[str, Any]) -> list[DraftFault]:
    inner = config.get("dflash_config")
    if not isinstance(inner, Mapping):
        expected = "dflash_config with target_layer_ids and mask_token_id"
        return [draft_fault(CONFIG, "no dflash_config", expected, _ANOTHER)]
    faults = []
    ids, layers = target_layers(config), _of_target(target, "num_hidden_layers")
    if not ids:
        found = f"dflash_config.target_layer_ids {str(inner.get('target_layer_ids'))[:60]}"
        faults.append(draft_fault(CONFIG, found, "the target's layers that the draft looks at, as numbers", _ANOTHER))
    elif layers is not None and (outside := [i for i in ids if not 0 <= i < layers]):
        found = f"dflash_config.target_layer_ids with {outside[0]}"
        faults.append(draft_fault(CONFIG, found, f"layers 0 to {layers - 1}, which the target has", _ANOTHER))
    mask, words = _int(inner.get("mask_token_id")), _of_target(target, "vocab_size")
    if mask is None or mask < 0 or (words is not None and mask >= words):
        found = f"dflash_config.mask_token_id {inner.get('mask_token_id')!r}"
        faults.append(
            draft_fault(CONFIG, found, f"a token of the target{f' (below {words})' if words else ''}", _ANOTHER)
        )
    return faults


def _check_depth(config: Mapping[str, Any], depth: int) -> list[DraftFault]:
    """A block holds the last known token and a mask for each proposed one."""
    inner = config.get("dflash_config")
    block = _int(inner.get("block_size")) if isinstance(inner, Mapping) else None
    block = _int(config.get("block_size")) if block is None else block
    if block is None or depth < block:
        return []
    cure = f"set runtime.vllm_spec_num_tokens to {block - 1} or less in the card"
    return [draft_fault(CONFIG, f"block_size {block} with a depth of {depth}", f"a depth of at most {block - 1}", cure)]


def _check_sizes(config: Mapping[str, Any], target: Mapping[str, Any]) -> list[DraftFault]:
    own, wanted = _int(config.get("hidden_size")), _of_target(target, "hidden_size")
    if own is not None and wanted is not None and own != wanted:
        expected = f"{wanted}, the target's: they share embedding and lm_head"
        return [draft_fault(CONFIG, f"hidden_size {own}", expected, _ANOTHER)]
    return []


def _check_precision(
    target: Mapping[str, Any], provenance: Mapping[str, Any], trained_for: str | None
) -> list[DraftFault]:
    """A draft learns the target's outputs as they are in one precision; for another one it proposes in vain (C80)."""
    learned = trained_for or provenance.get("trained_for") or of_name(str(provenance.get("source_repo") or ""))
    actual = of_config(target) or ("BF16" if target else None)
    if not learned or not actual or learned == actual:
        return []
    where = PROVENANCE if not trained_for else "card"
    cure = f"{_ANOTHER}, or set speculative.trained_for in the card if you know better"
    return [draft_fault(where, f"trained for a target in {learned}", f"{actual}, which the target is in", cure)]


def wanted_tensors(config: Mapping[str, Any]) -> list[str]:
    """Names of the weights that a Laguna draft has, before quantization."""
    names = ["fc.weight", "hidden_norm.weight", "norm.weight"]
    names += [f"aux_hidden_norms.{i}.weight" for i in range(len(target_layers(config)))]
    parts = ["input_layernorm", "post_attention_layernorm"]
    parts += [f"self_attn.{name}" for name in ("qkv_proj", "o_proj", "g_proj", "q_norm", "k_norm")]
    parts += [f"mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")]
    layers = range(_int(config.get("num_hidden_layers")) or 0)
    return names + [f"layers.{layer}.{part}.weight" for layer in layers for part in parts]


def check_tensors(config: Mapping[str, Any], header: Header, file: str) -> list[DraftFault]:
    """Whether the header holds a Laguna draft, quantized or not."""
    if not is_laguna(config):
        return []
    names = set(header.tensors)
    lacking = [n for n in wanted_tensors(config) if n not in names and f"{n}_packed" not in names]
    if lacking:
        found = f"without {lacking[0]}" + (f" and {len(lacking) - 1} more" if len(lacking) > 1 else "")
        return [draft_fault(file, found, "all weights that config.json announces", _ANOTHER)]
    fc, hidden = header.tensors.get("fc.weight"), _int(config.get("hidden_size"))
    if fc is not None and hidden is not None and fc.shape != (hidden, hidden * len(target_layers(config))):
        expected = f"[{hidden}, {hidden * len(target_layers(config))}], hidden_size for each of target_layer_ids"
        return [draft_fault(file, f"fc.weight of shape {list(fc.shape)}", expected, _ANOTHER)]
    return []


def check_draft(
    config: Mapping[str, Any],
    headers: Mapping[str, Header],
    target: Mapping[str, Any],
    depth: int = 0,
    provenance: Mapping[str, Any] | None = None,
    trained_for: str | None = None,
) -> list[DraftFault]:
    """Every fault of a DFlash draft. `headers` by file; target's config may be empty where it is not here yet."""
    name = architecture(config)
    if not re.match(r"DFlash\w*$", name):
        expected = "a DFlash architecture, as DFlashLagunaForCausalLM"
        return [draft_fault(CONFIG, f"architecture {name or 'none'}", expected, "check the draft that the card names")]
    faults = _check_vocabulary(config, target) + _check_layers(config) + _check_dflash(config, target)
    faults += _check_sizes(config, target) + _check_depth(config, depth)
    faults += _check_precision(target, provenance or {}, trained_for)
    tensors = [tensor for header in headers.values() for tensor in header.tensors]
    quantization: Sequence[tuple[str, str, str, str]] = [*check_ignore(config), *check_quantized(config, tensors)]
    faults += [draft_fault(*item) for item in quantization]
    if len(headers) == 1:
        file, header = next(iter(headers.items()))
        faults += check_tensors(config, header, file)
    return faults
