#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a model folder of any size that is whole by every check and means nothing: for tests and rates of moving.

make_shards.py OUT [--bytes 2160000000] [--shards 24] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import random
import struct
from pathlib import Path

BLOCK = 4 << 20


def write_shard(path: Path, name: str, count: int, seed: int) -> None:
    """One tensor of `count` BF16 values, bytes that do not compress."""
    entry = {name: {"dtype": "BF16", "shape": [count], "data_offsets": [0, 2 * count]}}
    header = json.dumps({"__metadata__": {"format": "pt"}, **entry}).encode()
    header += b" " * (-len(header) % 8)
    source = random.Random(seed)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        left = 2 * count
        while left:
            left -= stream.write(source.randbytes(min(left, BLOCK)))


def make(out: Path, size: int, shards: int, seed: int = 1) -> Path:
    """Write the folder; the total of the shards is about `size`."""
    out.mkdir(parents=True)
    weight_map = {}
    for number in range(1, shards + 1):
        name = f"model-{number:05d}-of-{shards:05d}.safetensors"
        weight_map[f"layers.{number}.weight"] = name
        write_shard(out / name, f"layers.{number}.weight", size // shards // 2, seed * 1000 + number)
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    config = {"architectures": ["LagunaForCausalLM"], "model_type": "laguna"}
    (out / "config.json").write_text(json.dumps(config) + "\n")
    (out / "README.md").write_text("Random bytes in the form of a model.\n")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bytes", type=int, default=2_160_000_000)
    parser.add_argument("--shards", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(make(options.out, options.bytes, options.shards, options.seed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
