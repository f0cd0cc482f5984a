# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Precision of a checkpoint, from its name or its quantization config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Words of names and of a card's `quantization` -> precision. The order of a name's words decides: the last one wins,
# as in `Model-BF16-Instruct-NVFP4`.
PRECISION_WORDS = {
    "fp8": "FP8", "w8a8fp8": "FP8", "f8": "FP8", "e4m3": "FP8",
    "nvfp4": "NVFP4", "modelopt_fp4": "NVFP4",
    "int4": "INT4", "w4a16": "INT4", "awq": "INT4", "gptq": "INT4", "autoround": "INT4", "4bit": "INT4",
    "bf16": "BF16", "bfloat16": "BF16",
}  # fmt: skip


def of_name(name: str) -> str | None:
    """The precision that a repository's or folder's name states."""
    found = None
    for word in re.split(r"[^a-z0-9]+", name.rpartition("/")[2].lower()):
        found = PRECISION_WORDS.get(word, found)
    return found


def of_config(config: Mapping[str, Any]) -> str | None:
    """The precision that a config.json's quantization states; None where it states none."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        text = config.get("text_config")
        quantization = text.get("quantization_config") if isinstance(text, Mapping) else None
    if not isinstance(quantization, Mapping):
        return None
    words = [quantization.get(key) for key in ("quant_method", "quant_algo", "format", "fmt")]
    groups = quantization.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping):
            words.append(f"{weights.get('type')}{weights.get('num_bits')}")
            words.append(group.get("format"))
    text_of_all = " ".join(str(word).lower() for word in words if word)
    for mark, name in (("nvfp4", "NVFP4"), ("float4", "NVFP4"), ("modelopt_fp4", "NVFP4"), ("int4", "INT4"),
                       ("pack-quantized", "INT4"), ("awq", "INT4"), ("gptq", "INT4"), ("auto-round", "INT4"),
                       ("fp8", "FP8"), ("float8", "FP8"), ("float-quantized", "FP8"), ("e4m3", "FP8")):  # fmt: skip
        if mark in text_of_all:
            return name
    return None
