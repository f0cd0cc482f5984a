# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a checkpoint, written byte for byte the same on every machine: safetensors, index, int4 packing."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
# dtype name in the header, shape, bytes
Tensor = tuple[str, list[int], bytes]


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _bf16_bits(array: Array) -> NDArray[np.uint16]:
    """Round to nearest, ties to even, as every framework does (no NaN occurs here)."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def round_bf16(array: Array) -> Array:
    return (_bf16_bits(array).astype(np.uint32) << 16).view(np.float32)


def bf16(array: Array) -> Tensor:
    return "BF16", list(array.shape), _bf16_bits(array).astype("<u2").tobytes()


def pack_int4(weight: Array, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """compressed-tensors ``pack-quantized``: symmetric int4 in groups along the input, eight to an int32, low first."""
    rows, columns = weight.shape
    grouped = weight.reshape(rows, columns // group, group)
    scale = round_bf16(np.maximum(np.abs(grouped).max(axis=-1, keepdims=True) / 7, 1e-8).astype(np.float32))
    codes = np.clip(np.rint(grouped / scale), -8, 7).astype(np.int64) + 8
    nibbles = codes.reshape(rows, columns // 8, 8) << (4 * np.arange(8))
    packed = nibbles.sum(axis=-1).astype("<u4")
    return (
        ("I32", [rows, columns // 8], packed.tobytes()),
        bf16(scale.reshape(rows, columns // group)),
        ("I64", [2], np.array([rows, columns], dtype="<i8").tobytes()),
    )


def write_safetensors(path: Path, tensors: dict[str, Tensor]) -> int:
    """Write one shard; returns the bytes of its tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
    return offset


def write_shards(folder: Path, shards: list[dict[str, Tensor]]) -> None:
    """Several shards and the index that says which tensor is where."""
    weight_map: dict[str, str] = {}
    total = 0
    for number, tensors in enumerate(shards, start=1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        total += write_safetensors(folder / name, tensors)
        weight_map |= dict.fromkeys(tensors, name)
    write_json(
        folder / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))},
    )
