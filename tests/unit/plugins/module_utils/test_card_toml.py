# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Bytes of a card: hostile input ends in one fault with a place, and quickly; lines are right."""

from __future__ import annotations

import os
import time
import tomllib
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_error import CardFaultError, Problem
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_toml import dump, parse, read_bytes
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.module_utils.card_makers import BUNDLED, CARDS

DEEP = 10_000
HOSTILE = {
    "empty": (b"", "an empty file", 0, 0),
    "blank": (b" \n\t\n", "an empty file", 0, 0),
    "broken": (b'model_id = "a/b"\nn_layers = = 3\n', "Invalid value", 2, 12),
    "unclosed": (b'model_id = "a/b\n', "Illegal character '\\n'", 1, 16),
    "end": (b"a = [1,\n2", "Unclosed array", 2, 0),
    "duplicate key": (b"a = 1\nb = 2\na = 3\n", "Cannot overwrite a value", 3, 6),
    "duplicate table": (b"[a]\nb = 1\n[a]\n", "Cannot declare ('a',) twice", 3, 3),
    "not utf-8": (b'a = 1\nb = "x\xff"\n', "byte 0xff", 2, 7),
    "utf-16": ("a = 1\n".encode("utf-16"), "byte 0xff", 1, 1),
    "byte-order mark": (b"\xef\xbb\xbfa = 1\n", "a byte-order mark", 1, 1),
    "nul": (b"a = 1\x00\n", "Expected newline", 1, 6),
    "too large": (b"#" * (1 << 20) + b"\n", "more than 1 MiB", 0, 0),
    "deep array": (b"a = " + b"[" * DEEP + b"]" * DEEP, "nested deeply", 1, 0),
    "deep array never closed": (b"a = " + b"[" * DEEP, "nested deeply", 1, 0),
    "deep inline table": (b"a = " + b"{a=" * DEEP + b"1" + b"}" * DEEP, "nested deeply", 1, 0),
    "deep key": (b"a." * DEEP + b"a = 1\n", "a key of many parts", 1, 0),
    "deep quoted key": (b'"a" . ' * DEEP + b"a = 1\n", "a key of many parts", 1, 0),
    "deep header": (b"\n[" + b"a." * DEEP + b"a]\n", "a key of many parts", 2, 0),
    "deep key in a value": (b"x = {" + b"a." * DEEP + b"a = 1}\n", "a key of many parts", 1, 0),
    "many keys": (b"".join(b"k%d = 1\n" % i for i in range(5000)), "more than 2000 keys", 2001, 0),
    "huge number": (b"a = " + b"9" * 5000, "Exceeds the limit", 0, 0),
    "bad date": (b"a = 2026-02-30\n", "Invalid date", 1, 5),
}


def fault(raw: bytes) -> Problem:
    with pytest.raises(CardFaultError) as caught:
        parse(raw, "card.toml")
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_one_fault_with_its_place_in_little_time(name: str) -> None:
    raw, given_words, line, column = HOSTILE[name]
    start = time.process_time()
    found = fault(raw)
    # Against an effort that grows with the square of the text; figures are in benchmarks/cards.
    assert time.process_time() - start < 1
    assert given_words in str(found.given)
    assert (found.line, found.file) == (line, "card.toml")
    if column:
        assert found.column == column
    assert found.allowed


@pytest.mark.parametrize(
    "unit", [b"a.", b'"', b"'", b"[", b"{", b"a={", b"#", b"\\", b'"""', b"'''", b",", b"=", b"a\n", b"[a]\n"]
)
def test_a_mebibyte_of_anything_takes_no_long_time(unit: bytes) -> None:
    start = time.process_time()
    fault(b"x = 1\ny = " + unit * ((1 << 20) // len(unit) - 6))
    assert time.process_time() - start < 1.5


def test_what_is_no_readable_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for place, words in (("folder", "a directory"), ("pipe", "no regular file"), ("none", "No such file")):
        with pytest.raises(CardFaultError) as caught:
            read_bytes(tmp_path / place)
        assert words in str(caught.value.problems[0].given)
        assert caught.value.problems[0].file.endswith(place)
    with pytest.raises(CardFaultError, match="no regular file"):
        read_bytes("/dev/zero")


def test_no_more_than_a_mebibyte_is_read(tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    with large.open("wb") as stream:
        stream.truncate(1 << 33)
    assert len(read_bytes(large)) == (1 << 20) + 1


TEXT = '''# head
model_id = "a/b" # comment with = and [brackets]
text = """
several = 1
[lines]
"""
list = [
  "a = 1", # not a key
  "]",
]
dotted.key."with space".'and.dot' = { inner = 1, list = [1, 2] }

[table] # comment
key = 'single # quoted'
[ table . "sub table" ]
last = 2026-01-01T00:00:00Z
[[rows]]
a = 1
[[rows]]
a = 2
end = 1.5'''


def test_lines_of_keys() -> None:
    data, lines = parse(TEXT.encode())
    assert data["rows"][1]["end"] == 1.5
    assert lines == {
        ("model_id",): 2,
        ("text",): 3,
        ("list",): 7,
        ("dotted",): 11,
        ("dotted", "key"): 11,
        ("dotted", "key", "with space"): 11,
        ("dotted", "key", "with space", "and.dot"): 11,
        ("table",): 13,
        ("table", "key"): 14,
        ("table", "sub table"): 15,
        ("table", "sub table", "last"): 16,
        ("rows",): 17,
        ("rows", "a"): 18,
        ("rows", "end"): 21,
    }


def test_windows_line_ends_count_as_lines() -> None:
    _data, lines = parse(b"a = 1\r\n\r\nb = 2\r\n")
    assert lines == {("a",): 1, ("b",): 3}


@pytest.mark.parametrize("name", BUNDLED)
def test_every_key_of_a_bundled_card_has_a_line(name: str) -> None:
    raw = (CARDS / f"{name}.toml").read_bytes()
    data, lines = parse(raw)
    rows = raw.decode().splitlines()
    for key, found in data.items():
        assert rows[lines[(key,)] - 1].lstrip("[").startswith(key)
        for inner in found if isinstance(found, dict) else ():
            assert inner in rows[lines[(key, inner)] - 1] or isinstance(found[inner], dict)


scalars = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False),
                    st.text(st.characters(exclude_categories=["Cs"]), max_size=12))  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), values, min_size=1, max_size=5
    )
)
def test_dump_and_parse_are_inverse(data: dict[str, object]) -> None:
    text = dump(data)
    assert tomllib.loads(text) == data
    parsed, lines = parse(text.encode())
    assert parsed == data
    assert all((key,) in lines for key in data)
