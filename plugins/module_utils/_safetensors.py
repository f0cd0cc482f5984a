# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What a safetensors file says of itself, from its header alone.

The format: eight bytes with the header's length, a JSON object of that length that names each tensor with dtype,
shape and the place of its bytes, then the bytes, without holes and to the end of the file. Whatever is not so is a
`HeaderError`; no input makes anything else come out.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Bits of one element.
DTYPE_BITS: Final = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}
# The reference implementation refuses a longer header as well.
MAX_HEADER: Final = 100_000_000


class HeaderError(Exception):
    """A file that is not a whole safetensors file; `kind` is truncated, trailing or bad_header."""

    def __init__(self, kind: str, found: str, expected: str) -> None:
        super().__init__(f"{found}; expected {expected}")
        self.kind = kind
        self.found = found
        self.expected = expected


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where one tensor lies; offsets count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one file."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]
    data_start: int
    size: int


def _bad(found: str, expected: str) -> HeaderError:
    return HeaderError("bad_header", found, expected)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _unused in pairs]
        twice = next(name for name in result if names.count(name) > 1)
        raise _bad(f"the name {twice!r} twice", "each name once")
    return result


def _parse(raw: bytes) -> dict[str, Any]:
    if not raw.startswith(b"{"):
        raise _bad(f"a header that begins with {raw[:1]!r}", "a JSON object")
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except HeaderError:
        raise
    except (ValueError, RecursionError) as error:
        raise _bad(f"a header that is not JSON ({error})", "a JSON object") from None
    if not isinstance(value, dict):
        raise _bad("a header of another JSON type", "a JSON object")
    return value


def _is_int(value: object) -> bool:
    return type(value) is int and value >= 0


def _tensor(name: str, entry: Any) -> Tensor:
    """One entry, checked: its bytes are as many as dtype and shape make them."""
    try:
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        begin, end = offsets
    except (TypeError, KeyError, ValueError):
        raise _bad(f"{name}: {str(entry)[:80]}", "dtype, shape and two data_offsets") from None
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise _bad(f"{name}: dtype {str(dtype)[:40]!r}", "a dtype of the format")
    if not isinstance(shape, list) or not all(map(_is_int, shape)):
        raise _bad(f"{name}: shape {str(shape)[:80]}", "a list of sizes")
    if not (_is_int(begin) and _is_int(end) and begin <= end):
        raise _bad(f"{name}: data_offsets {str(offsets)[:80]}", "begin and end, in this order")
    bits = DTYPE_BITS[dtype]
    for size in shape:
        bits *= size
        if bits > 1 << 70:
            raise _bad(f"{name}: shape {str(shape)[:80]}", "a size that a file can have")
    if bits % 8 or bits // 8 != end - begin:
        raise _bad(f"{name}: {end - begin} bytes", f"{bits / 8:g} for {dtype} {shape}")
    return Tensor(dtype, tuple(shape), begin, end)


def _without_holes(tensors: dict[str, Tensor]) -> int:
    """The end of the last tensor, once each begins where the one before it ends."""
    at = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != at:
            raise _bad(f"{name}: begins at {tensor.begin}", f"{at}, where the one before it ends")
        at = tensor.end
    return at


def parse_header(raw: bytes, size: int) -> Header:
    """The header in the first bytes of a file of `size` bytes; `raw` holds at least the header."""
    if size < 8:
        raise HeaderError("truncated", f"{size} bytes", "at least 8 and a header")
    length = int.from_bytes(raw[:8], "little")
    if length > MAX_HEADER:
        raise _bad(f"a header of {length} bytes", f"at most {MAX_HEADER}")
    if length + 8 > size:
        raise HeaderError("truncated", f"{size} bytes", f"at least {length + 8}, where the header ends")
    entries = _parse(raw[8 : 8 + length])
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _bad("__metadata__ that is not text", "names with text")
    tensors = {name: _tensor(name, entry) for name, entry in entries.items()}
    data_start = 8 + length
    end = data_start + _without_holes(tensors)
    if end > size:
        raise HeaderError("truncated", f"{size} bytes", f"{end} bytes, by its own header")
    if end < size:
        raise HeaderError("trailing", f"{size} bytes", f"{end} bytes, by its own header")
    return Header(tensors, metadata, data_start, size)


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read and check the header of a file; raises HeaderError, and OSError where the file cannot be read."""
    with Path(path).open("rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        raw = stream.read(8) or b""
        length = int.from_bytes(raw, "little")
        if len(raw) == 8 and length <= min(MAX_HEADER, size):
            while len(raw) < 8 + length and (more := stream.read(8 + length - len(raw))):
                raw += more
    return parse_header(raw, size)
