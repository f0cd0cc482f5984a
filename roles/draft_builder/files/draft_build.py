# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
# mypy: disable-error-code="import-not-found,no-untyped-call,no-any-return"
"""Quantizes a DFlash draft to W4A16 with compressed-tensors, in the engine's Python: a program of its own.

Reads one JSON order from standard input, answers with JSON lines on standard output. Works through the weights piece
by piece, so that memory is bounded by a piece and not by the model, writes a folder, reads it back and measures.

    {"source": folder, "into": empty folder, "quantize": [expressions], "ignore": [entries], "group": 128}
        -> {"done": bytes, "total": bytes} now and then, {"result": {...}} or {"error": text} in the end
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import compressed_tensors
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.config import CompressionFormat
from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
    QuantizationStatus,
)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors import safe_open

OUT = "model.safetensors"
# Elements at a time: 64 MB as float32.
PIECE = 16 << 20
NAMES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.int32: "I32", torch.int64: "I64"}
SIZES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8}
# Half a step from rounding, and what eight steps gain or lose by the scale's own rounding to the 8 bits of BF16.
BOUND = 0.5 + 8 * 2**-8


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class RefusalError(Exception):
    """The source cannot be quantized; the message says why."""


class Meter:
    """Tells how far the work is; every weight is read twice, to pack it and to measure it."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.told = total, 0, 0

    def add(self, count: int) -> None:
        self.done += count
        if self.done - self.told > 32 << 20 or self.done >= self.total:
            self.told = self.done
            say({"done": self.done, "total": self.total})


class Sources:
    """The source's safetensors files, read a slice at a time."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(path.name for path in folder.glob("*.safetensors"))
        self.readers = {name: safe_open(folder / name, "pt") for name in self.files}
        self.where = {key: name for name, reader in self.readers.items() for key in reader.keys()}  # noqa: SIM118

    def shape(self, name: str) -> list[int]:
        return list(self.readers[self.where[name]].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        return str(self.readers[self.where[name]].get_slice(name).get_dtype())

    def pieces(self, name: str) -> Iterator[torch.Tensor]:
        """The tensor by rows."""
        piece = self.readers[self.where[name]].get_slice(name)
        shape = piece.get_shape()
        if not shape:
            yield self.readers[self.where[name]].get_tensor(name).reshape(1)
            return
        rows = max(1, PIECE // max(1, int(torch.Size(shape[1:]).numel())))
        for first in range(0, shape[0], rows):
            yield piece[first : first + rows]


def chosen(order: dict[str, Any], sources: Sources) -> list[str]:
    """Weights to quantize: those whose module an expression matches as a whole."""
    expressions = [re.compile(text) for text in order["quantize"]]
    names = []
    for name in sources.where:
        module = name.removesuffix(".weight")
        if name == module or not any(e.fullmatch(module) for e in expressions):
            continue
        shape = sources.shape(name)
        if len(shape) != 2 or shape[1] % order["group"] or shape[1] % 8:
            raise RefusalError(
                f"{name}: shape {shape}: expected two dimensions, the second a multiple of {order['group']}"
            )
        if sources.dtype(name) not in ("BF16", "F16", "F32"):
            raise RefusalError(f"{name}: {sources.dtype(name)}: expected a weight that is not quantized yet")
        names.append(name)
    if not names:
        raise RefusalError(f"no weight matches {', '.join(order['quantize'])}")
    return names


def scheme(group: int) -> QuantizationScheme:
    args = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=group)
    return QuantizationScheme(targets=["Linear"], weights=args)


def pack(weight: torch.Tensor, plan: QuantizationScheme) -> dict[str, torch.Tensor]:
    """One piece: the library's scales, kept in the weight's type, and its packing by those kept scales."""
    assert plan.weights is not None
    assert plan.weights.group_size is not None
    full = weight.float()
    groups = full.unflatten(-1, (-1, plan.weights.group_size))
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), plan.weights)
    kept = scale.to(weight.dtype)
    packer = BaseCompressor.get_value_from_registry(CompressionFormat.pack_quantized.value)
    made = packer.compress({"weight": full, "weight_scale": kept.float()}, plan)
    return {"weight_packed": made["weight_packed"], "weight_scale": kept}


def layout(order: dict[str, Any], sources: Sources, quantized: set[str]) -> dict[str, tuple[str, list[int]]]:
    """Every tensor of the result, with type and shape, in the order in which they are written."""
    found: dict[str, tuple[str, list[int]]] = {}
    for name in sorted(sources.where):
        shape, dtype = sources.shape(name), sources.dtype(name)
        if name not in quantized:
            found[name] = (dtype, shape)
            continue
        base, kind = name.removesuffix("weight"), dtype
        found[f"{base}weight_packed"] = ("I32", [shape[0], shape[1] // 8])
        found[f"{base}weight_scale"] = (kind, [shape[0], shape[1] // order["group"]])
        found[f"{base}weight_shape"] = ("I64", [2])
    return found


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def write(order: dict[str, Any], sources: Sources, quantized: set[str], plan: QuantizationScheme, meter: Meter) -> None:
    """The result's one file, piece by piece: its header is known before its content."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    places, at = {}, 0
    for name, (dtype, shape) in layout(order, sources, quantized).items():
        size = SIZES[dtype] * int(torch.Size(shape).numel())
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        places[name] = at
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    with (Path(order["into"]) / OUT).open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(start + at)
        for name in sorted(sources.where):
            base = name.removesuffix("weight")
            ends = {
                key: start + places[key]
                for key in (name, f"{base}weight_packed", f"{base}weight_scale")
                if key in places
            }
            for piece in sources.pieces(name):
                made = {name: piece} if name not in quantized else {base + k: v for k, v in pack(piece, plan).items()}
                for key, tensor in made.items():
                    ends[key] = put(stream, ends[key], raw(tensor))
                meter.add(piece.numel() * piece.element_size())
            if name in quantized:
                put(stream, start + places[f"{base}weight_shape"], raw(torch.tensor(sources.shape(name))))
        os.fsync(stream.fileno())


def put(stream: BinaryIO, at: int, data: bytes) -> int:
    stream.seek(at)
    stream.write(data)
    return at + len(data)


def measure(
    order: dict[str, Any], sources: Sources, quantized: set[str], plan: QuantizationScheme, meter: Meter
) -> dict[str, float]:
    """Read the result back: the largest error of each packed weight in steps, and equality of all others."""
    unpacker = BaseCompressor.get_value_from_registry(CompressionFormat.pack_quantized.value)
    errors: dict[str, float] = {}
    result = Sources(Path(order["into"]))
    for name in sorted(sources.where):
        base = name.removesuffix("weight")
        if name not in quantized:
            for before, after in zip(sources.pieces(name), result.pieces(name), strict=True):
                if raw(before) != raw(after):
                    raise RefusalError(f"{name}: what was written is not what was read")
                meter.add(before.numel() * before.element_size())
            continue
        worst, first = 0.0, 0
        packed = result.readers[OUT].get_slice(f"{base}weight_packed")
        scales = result.readers[OUT].get_slice(f"{base}weight_scale")
        for before in sources.pieces(name):
            rows = slice(first, first + before.shape[0])
            first += before.shape[0]
            scale = scales[rows].float()
            state = {"weight_packed": packed[rows], "weight_scale": scale, "weight_shape": torch.tensor(before.shape)}
            after = unpacker.decompress(state, plan)["weight"].float()
            gap = (after - before.float()).abs().unflatten(-1, (-1, order["group"])).amax(-1)
            worst = max(worst, float((gap / scale).max()))
            meter.add(before.numel() * before.element_size())
        errors[name] = round(worst, 4)
        if not worst <= BOUND:
            raise RefusalError(
                f"{name}: an error of {worst:.3f} steps, more than the {BOUND:.3f} that four bits can have"
            )
    return errors


def config_of(order: dict[str, Any], plan: QuantizationScheme) -> dict[str, Any]:
    made = QuantizationConfig(
        config_groups={"group_0": plan},
        format=CompressionFormat.pack_quantized.value,
        quantization_status=QuantizationStatus.COMPRESSED,
        ignore=order["ignore"],
    )
    found: dict[str, Any] = json.loads(made.model_dump_json())
    return found


def build(order: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0))))
    source, into = Path(order["source"]), Path(order["into"])
    sources = Sources(source)
    plan = scheme(order["group"])
    quantized = set(chosen(order, sources))
    sizes = (SIZES.get(sources.dtype(n), 1) * int(torch.Size(sources.shape(n)).numel()) for n in sources.where)
    meter = Meter(2 * sum(sizes))
    write(order, sources, quantized, plan, meter)
    errors = measure(order, sources, quantized, plan, meter)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = config_of(order, plan)
    (into / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return {
        "errors": errors,
        "bound": round(BOUND, 4),
        "tools": {"compressed_tensors": compressed_tensors.__version__, "torch": torch.__version__},
        "source_files": {name: file_sum(source / name) for name in sources.files},
    }


def file_sum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def main() -> int:
    try:
        say({"result": build(json.load(sys.stdin))})
    except (RefusalError, OSError, ValueError, KeyError) as error:
        say({"error": str(error) if isinstance(error, RefusalError) else f"{type(error).__name__}: {error}"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
