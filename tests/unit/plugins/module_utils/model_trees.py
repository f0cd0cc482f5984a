# SPDX-License-Identifier: GPL-3.0-or-later
"""Small model folders for tests: whole ones, which a test then breaks."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any


def shard_bytes(tensors: dict[str, int], fill: int = 0) -> bytes:
    """A safetensors file of BF16 vectors of the given lengths."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, count in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [count], "data_offsets": [at, at + 2 * count]}
        at += 2 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + (bytes((fill + i) % 251 for i in range(251)) * (at // 251 + 1))[:at]


def shard_name(number: int, count: int) -> str:
    return f"model-{number:05d}-of-{count:05d}.safetensors"


def make_tree(root: Path, shards: int = 24, tensors: int = 3, length: int = 50) -> Path:
    """A whole checkpoint of several shards with an index."""
    root.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    for number in range(1, shards + 1):
        names = {f"layers.{number}.part{i}.weight": length + i % 5 for i in range(tensors)}
        (root / shard_name(number, shards)).write_bytes(shard_bytes(names, fill=number))
        weight_map |= dict.fromkeys(names, shard_name(number, shards))
    write_index(root, weight_map)
    (root / "config.json").write_text(json.dumps({"architectures": ["LagunaForCausalLM"], "vocab_size": 320}))
    (root / "tokenizer.json").write_text("{}")
    return root


def write_index(root: Path, weight_map: dict[str, str]) -> None:
    (root / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def read_index(root: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((root / "model.safetensors.index.json").read_text())["weight_map"]
    return found
