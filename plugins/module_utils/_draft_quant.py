# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What a draft's quantization config makes of its modules, by the rules that vLLM goes by.

vLLM knows a draft's module `layers.0.mlp.up_proj` as `model.layers.0.mlp.up_proj`. An entry of `ignore` or `targets`
is either that whole name, or `re:` and an expression that matches from its beginning, or the name of a class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

CONFIG: Final = "config.json"
PREFIX: Final = "model."
# DFlash slices this weight by itself, and the per-head gate is too small for groups.
KEEP: Final = ("self_attn.qkv_proj", "self_attn.g_proj")
_LINEAR: Final = (*KEEP, "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
Found = tuple[str, str, str, str]


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = config.get("quantization_config")
    return found if isinstance(found, Mapping) and found.get("quant_method") == "compressed-tensors" else {}


def entries(config: Mapping[str, Any]) -> list[str]:
    """The `ignore` list."""
    found = _quantization(config).get("ignore")
    return [str(entry) for entry in found] if isinstance(found, list) else []


def as_expression(module: str) -> str:
    """The entry that means the modules that a literal name was meant for: in every layer, under every prefix."""
    tail = re.sub(r"^(?:.*\.)?layers\.\d+\.", "", module)
    return rf"re:.*\.{re.escape(tail)}$" if tail != module else rf"re:(.*\.)?{re.escape(module)}$"


def _matches(name: str, entry: str) -> bool:
    if entry.startswith("re:"):
        try:
            return re.match(entry[3:], name) is not None
        except re.error:
            return False
    return entry == name


def ignored(module: str, ignore: Sequence[str]) -> bool:
    """Whether vLLM leaves a module of the draft (by its name in the checkpoint) as it is."""
    return any(_matches(PREFIX + module, entry) for entry in ignore)


def modules(config: Mapping[str, Any]) -> list[str]:
    """The linear modules of a draft, by its config alone."""
    count = config.get("num_hidden_layers")
    layers = range(count if type(count) is int and 0 < count <= 1000 else 0)
    return ["fc", *(f"layers.{layer}.{part}" for layer in layers for part in _LINEAR)]


def check_ignore(config: Mapping[str, Any]) -> list[Found]:
    """Entries that match nothing though they name something, and modules that must stay and would not (C82)."""
    ignore, faults = entries(config), []
    if not _quantization(config):
        return []
    known = modules(config)
    for entry in ignore:
        if entry.startswith("re:"):
            try:
                re.compile(entry[3:])
            except re.error as error:
                cure = "mend the expression; what it does not match is quantized"
                faults.append((CONFIG, f"ignore entry {entry!r} ({error})", "a regular expression", cure))
            continue
        meant = [name for name in known if name == entry or name.endswith(f".{entry}")]
        if meant and PREFIX + meant[0] != entry:
            better = as_expression(entry)
            faults.append(
                (
                    CONFIG,
                    f"literal name {entry!r} in ignore",
                    f"{better!r}: vLLM compares it with {PREFIX + meant[0]!r}",
                    f"replace it by {better}, or build the draft with playbooks/build_draft.yml",
                )
            )
    for part in KEEP:
        gone = [name for name in known if name.endswith(part) and not ignored(name, ignore)]
        if gone:
            entry = as_expression(gone[0])
            cure = f"add {entry} to ignore, with this weight left in BF16; playbooks/build_draft.yml does both"
            faults.append((CONFIG, f"ignore leaves {gone[0]} to be quantized", f"an entry as {entry}", cure))
    return faults


def check_quantized(config: Mapping[str, Any], tensors: Iterable[str]) -> list[Found]:
    """The header against the config: what is packed must not be ignored, what is not packed must be."""
    names, faults, ignore = set(tensors), [], entries(config)
    packed = sorted(name.removesuffix(".weight_packed") for name in names if name.endswith(".weight_packed"))
    if qkv := [name for name in packed if name.endswith("self_attn.qkv_proj")]:
        cure = "build the draft with playbooks/build_draft.yml, which keeps qkv_proj in BF16"
        faults.append(("model.safetensors", f"{qkv[0]} is quantized", "BF16: DFlash slices its weight", cure))
    if not _quantization(config):
        if packed:
            found = f"{packed[0]} is packed, and config.json has no quantization_config"
            faults.append(("model.safetensors", found, "one of the two", "take the config.json of the same build"))
        return faults
    if wrong := [name for name in packed if ignored(name, ignore)]:
        found = f"{wrong[0]} is packed and in ignore"
        faults.append(("model.safetensors", found, "not both", "build the draft with playbooks/build_draft.yml"))
    plain = [name for name in modules(config) if f"{name}.weight" in names and not ignored(name, ignore)]
    told = {part for part in KEEP if any(name.endswith(part) for name in plain)}
    if wrong := [name for name in plain if not name.endswith(tuple(told))]:
        found = f"{wrong[0]} is not packed and not in ignore"
        expected = f"an entry in ignore, as {as_expression(wrong[0])}"
        faults.append(("model.safetensors", found, expected, "build the draft with playbooks/build_draft.yml"))
    return faults
