# SPDX-License-Identifier: GPL-3.0-or-later
"""Headers of safetensors files: what is whole is read as the reference library reads it, what is not is named."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._safetensors import (
    DTYPE_BITS,
    HeaderError,
    parse_header,
    read_header,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from tests.unit.plugins.module_utils.model_trees import shard_bytes

NUMPY = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I8": np.int8, "I64": np.int64, "U8": np.uint8}


def with_header(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(sorted(NUMPY)), st.lists(st.integers(0, 4), max_size=3)),
        max_size=6,
    )
)
@settings(max_examples=200, deadline=None)
def test_reads_what_the_reference_library_writes(wanted: dict[str, tuple[str, list[int]]]) -> None:
    raw = save({name: np.zeros(shape, NUMPY[dtype]) for name, (dtype, shape) in wanted.items()})
    found = parse_header(raw, len(raw))
    assert {name: (t.dtype, list(t.shape)) for name, t in found.tensors.items()} == wanted
    assert found.data_start + sum(t.end - t.begin for t in found.tensors.values()) == len(raw)


@given(st.integers(0, 2000))
@settings(max_examples=300, deadline=None)
def test_every_truncation_is_found(cut: int) -> None:
    raw = shard_bytes({"a": 100, "b": 7, "c": 0})
    short = raw[: min(cut, len(raw) - 1)]
    with pytest.raises(HeaderError) as error:
        parse_header(short, len(short))
    assert error.value.kind == "truncated"
    assert str(len(short)) in error.value.found


@given(st.binary(min_size=1, max_size=50))
def test_bytes_behind_the_end_are_found(more: bytes) -> None:
    raw = shard_bytes({"a": 100}) + more
    with pytest.raises(HeaderError) as error:
        parse_header(raw, len(raw))
    assert error.value.kind == "trailing"


@given(st.integers(0, 400), st.integers(1, 255))
@settings(max_examples=500, deadline=None)
def test_no_changed_byte_makes_a_traceback(tmp_path_factory: pytest.TempPathFactory, at: int, by: int) -> None:
    """A byte flipped anywhere in the header: an error of ours, or a header that the reference library reads too."""
    raw = bytearray(shard_bytes({"first": 9, "second": 3}))
    raw[at % len(raw)] = (raw[at % len(raw)] + by) % 256
    path = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    path.write_bytes(raw)
    try:
        found = read_header(path)
    except HeaderError:
        return
    with safe_open(path, "numpy") as reader:
        assert set(reader.keys()) == set(found.tensors)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(max_examples=500, deadline=None)
def test_any_header_is_judged(text: bytes) -> None:
    raw = with_header(text)
    with contextlib.suppress(HeaderError):
        assert parse_header(raw, len(raw)).tensors == {}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"dtype": "BF17", "shape": [1], "data_offsets": [0, 2]}, "BF17"),
        ({"dtype": "BF16", "shape": [-1], "data_offsets": [0, 2]}, "shape"),
        ({"dtype": "BF16", "shape": [True], "data_offsets": [0, 2]}, "shape"),
        ({"dtype": "BF16", "shape": [1.0], "data_offsets": [0, 2]}, "shape"),
        ({"dtype": "BF16", "shape": [1], "data_offsets": [2, 0]}, "data_offsets"),
        ({"dtype": "BF16", "shape": [1], "data_offsets": [0]}, "data_offsets"),
        ({"dtype": "BF16", "shape": [3], "data_offsets": [0, 2]}, "2 bytes"),
        ({"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}, "bytes"),
        ({"dtype": "BF16", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 2]}, "shape"),
        ({"dtype": "BF16", "shape": [1], "data_offsets": [4, 6]}, "begins at 4"),
        ("text", "text"),
        (None, "None"),
    ],
)
def test_a_bad_entry_says_what_is_wrong_with_it(entry: Any, said: str) -> None:
    raw = with_header({"x": entry}, bytes(6))
    with pytest.raises(HeaderError, match=f"(?s).*{said}") as error:
        parse_header(raw, len(raw))
    assert error.value.kind == "bad_header"


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": {"dtype": "U8", "shape": [], "data_offsets": [0,1]}, "a": 1}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"__metadata__": {"a": 1}}',
        b'{"__metadata__": []}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"\xff\xfe{}",
        b" {}",
        b"",
    ],
)
def test_hostile_headers_are_refused(text: bytes) -> None:
    with pytest.raises(HeaderError) as error:
        parse_header(with_header(text, b"x"), 8 + len(text) + 1)
    assert error.value.kind == "bad_header"


def test_a_header_larger_than_the_format_allows_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.safetensors"
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", 200_000_000))
        stream.truncate(300_000_000)
    with pytest.raises(HeaderError, match="200000000"):
        read_header(path)


def test_the_table_of_dtypes_is_the_library_s() -> None:
    """Each name is one that the reference library knows: it complains of the size, not of the name."""
    for dtype, bits in DTYPE_BITS.items():
        raw = with_header({"x": {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}}, bytes(bits))
        assert parse_header(raw, len(raw)).tensors["x"].dtype == dtype
        wrong = with_header({"x": {"dtype": dtype, "shape": [8], "data_offsets": [0, bits + 8]}}, bytes(bits + 8))
        with pytest.raises(SafetensorError, match="invalid shape, data type, or offset"):
            load(wrong)
