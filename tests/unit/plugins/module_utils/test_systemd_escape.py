# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Argument lists for a unit, against a second reading of systemd's own steps.

The proof with a real systemd is tests/engine/unit_argv.py.
"""

from __future__ import annotations

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _systemd_escape as escape
from hypothesis import given
from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
tricky = st.text(" \t\n\"'\\%$;{}@-+!:|#=aé€x41", max_size=20)
CONTROL = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"'}


def words_of(line: str) -> list[str]:
    """Words as systemd takes them from a line: quotes and C escapes, then `;`, then `%`."""
    words: list[str] = []
    at = 0
    while at < len(line):
        if line[at] in " \t":
            at += 1
            continue
        assert not (line[at] == ";" and line[at + 1 : at + 2] in ("", " ", "\t")), "a separator of commands"
        word, quote = "", ""
        while at < len(line) and (quote or line[at] not in " \t"):
            char = line[at]
            if char == "\\":
                mark = line[at + 1]
                if mark == "x":
                    word += chr(int(line[at + 2 : at + 4], 16))
                    at += 4
                    continue
                word += CONTROL[mark]
                at += 2
                continue
            if quote and char == quote:
                quote = ""
            elif not quote and char in "\"'":
                quote = char
            else:
                word += char
            at += 1
        assert not quote, "a quote that is not closed"
        assert "%" not in word.replace("%%", ""), "a specifier"
        words.append(word.replace("%%", "%"))
    return words


def expanded(word: str) -> str:
    """An argument as it is started: `$$` is one, a single one would be a variable."""
    assert "$" not in word.replace("$$", ""), "a variable"
    return word.replace("$$", "$")


@given(st.lists(st.one_of(texts, tricky), max_size=8))
def test_what_goes_in_comes_out(values: list[str]) -> None:
    line = escape.argv(values)
    assert "\n" not in line
    assert [expanded(word) for word in words_of(line)] == values


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), tricky, max_size=4))
def test_variables_come_out_unchanged(values: dict[str, str]) -> None:
    lines = escape.environment(values).splitlines() if values else []
    found = {}
    for line in lines:
        assert line.startswith("Environment=")
        (pair,) = words_of(line.removeprefix("Environment="))
        name, _sign, text = pair.partition("=")
        found[name] = text
    assert found == values
    assert [line.split("=")[1].lstrip('"') for line in lines] == sorted(values)


def test_plain_words_stay_readable() -> None:
    assert escape.argv(["/opt/vllm", "serve", "--max-model-len", "262144", "a=b:c@d,e+f"]) == (
        "/opt/vllm serve --max-model-len 262144 a=b:c@d,e+f"
    )
    assert escape.argv(['{"method":"dflash"}']) == '"{\\"method\\":\\"dflash\\"}"'
    assert escape.argv(["", ";", "100%", "$HOME", "a b"]) == '"" ";" 100%% $$HOME "a b"'
    assert (
        escape.environment({"B": "a b", "A": "50%", "C": "$X"})
        == 'Environment=A=50%%\nEnvironment="B=a b"\nEnvironment=C=$X'
    )


def test_a_program_is_an_absolute_path_and_keeps_its_dollar() -> None:
    assert escape.argv(["/usr/bin/x y", "a"], program=True) == '"/usr/bin/x y" a'
    assert escape.argv(["/opt/$v/x%", "a"], program=True) == "@/opt/$v/x%% /opt/$$v/x%% a"
    assert escape.argv(["/opt/$v x"], program=True) == '"@/opt/$v x" "/opt/$$v x"'
    for bad in ([], ["x"], ["-/usr/bin/x"], [""]):
        with pytest.raises(ValueError, match="absolute path"):
            escape.argv(bad, program=True)
    for worse in ("/a'b", '/a"b', "/a\\b", "/a\nb"):
        with pytest.raises(ValueError, match="quotes or backslashes"):
            escape.argv([worse], program=True)


@pytest.mark.parametrize("bad", ["text", None, 5, {"a": 1}])
def test_a_list_is_needed(bad: object) -> None:
    with pytest.raises(ValueError, match="list of arguments"):
        escape.argv(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["nul\0", "half \ud800", None, True, ["a"], {"a": 1}])
def test_what_no_process_can_receive_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"^argument: "):
        escape.argv([bad])
    with pytest.raises(ValueError, match="A: "):
        escape.environment({"A": bad})


def test_numbers_are_texts() -> None:
    assert escape.argv(["--port", 8000, 0.85]) == "--port 8000 0.85"
    assert escape.environment({"OMP_NUM_THREADS": 1}) == "Environment=OMP_NUM_THREADS=1"


def test_names_and_lengths_are_checked() -> None:
    for name in ("1A", "A B", "", "A-B", "é"):
        with pytest.raises(ValueError, match="a name has letters"):
            escape.environment({name: "x"})
    with pytest.raises(ValueError, match="control characters"):
        escape.environment({"A": "\x07"})
    with pytest.raises(ValueError, match="longer than a line"):
        escape.argv(["x" * (1 << 20)])
    with pytest.raises(ValueError, match="longer than a line"):
        escape.environment({"A": "x" * (1 << 20)})
    with pytest.raises(ValueError, match="table of variables"):
        escape.environment(["A=1"])  # type: ignore[arg-type]
