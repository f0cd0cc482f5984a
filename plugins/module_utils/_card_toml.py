# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""TOML of a card: bytes to a table with line numbers, and a table back to text.

The standard parser gives no line numbers, takes time that grows with the square of a dotted key's length, and leaves
with other exceptions than its own on hostile input. So a scan of the text comes first: it finds the line of each key
and refuses what no card needs.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from ._card_error import CardFaultError, Problem

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_KEYS = 2_000

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_SIMPLE = re.compile(r"[ \t]*([A-Za-z0-9_-]+)[ \t]*(?=[=\]])")
_STRING = re.compile(r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''', re.DOTALL)
_PLAIN = re.compile(r"""[^"'\[\]{}#\n,=.]+""")
_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")

Lines = dict[tuple[str, ...], int]


class _Scan:
    """One pass over the text: lines of keys, and bounds on depth and number.

    The scan stops without a word where the text is no TOML; the parser says what is wrong there.
    """

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.at = 0
        self.line = 1
        self.counted = self.keys = 0
        self.lines: Lines = {}

    def refuse(self, given: str, allowed: str) -> NoReturn:
        raise CardFaultError([Problem("", "", given, allowed, line=self.count(), file=self.file)])

    def count(self) -> int:
        """The line of the current position."""
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line

    def blank(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()

    def key(self) -> tuple[str, ...] | None:
        """A dotted key."""
        simple = _SIMPLE.match(self.text, self.at)
        if simple:
            self.at = simple.end()
            return (simple[1],)
        parts: list[str] = []
        while True:
            self.blank(_SPACE)
            found = _PART.match(self.text, self.at)
            if found is None:
                return None
            word = found.group()
            if word[0] == '"':
                try:
                    word = json.loads(word)
                except ValueError:
                    word = word[1:-1]
            elif word[0] == "'":
                word = word[1:-1]
            parts.append(word)
            if len(parts) > MAX_DEPTH:
                self.refuse("a key of many parts", f"at most {MAX_DEPTH} parts")
            self.at = found.end()
            self.blank(_SPACE)
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def note(self, path: tuple[str, ...]) -> None:
        line = self.count()
        for parts in range(1, len(path) + 1):
            self.lines.setdefault(path[:parts], line)
        self.keys += 1
        if self.keys > MAX_KEYS:
            self.refuse(f"more than {MAX_KEYS} keys", f"at most {MAX_KEYS} keys")

    def value(self) -> bool:
        """Pass over a value; false where it is not one."""
        depth = dots = 0
        text, end = self.text, len(self.text)
        while self.at < end:
            char = text[self.at]
            if char in "\"'":
                found = _STRING.match(text, self.at)
                if found is None:
                    return False
                self.at = found.end()
            elif char in "[{":
                depth, dots = depth + 1, 0
                if depth > MAX_DEPTH:
                    self.refuse("a value nested deeply", f"at most {MAX_DEPTH} levels")
                self.at += 1
            elif char in "]}":
                depth, dots = depth - 1, 0
                if depth < 0:
                    return False
                self.at += 1
            elif char == "#":
                self.at = text.find("\n", self.at)
                if self.at < 0:
                    self.at = end
            elif char == "\n":
                if depth == 0:
                    return True
                self.at += 1
            elif char in ",=.":
                dots = dots + 1 if char == "." else 0
                if dots > MAX_DEPTH:
                    self.refuse("a key of many parts", f"at most {MAX_DEPTH} parts")
                self.at += 1
            else:
                found = _PLAIN.match(text, self.at)
                self.at = found.end() if found else self.at + 1
        return depth == 0

    def run(self) -> Lines:
        table: tuple[str, ...] = ()
        while True:
            self.blank(_BLANK)
            if self.at >= len(self.text):
                return self.lines
            if self.text[self.at] == "[":
                self.at += 2 if self.text.startswith("[[", self.at) else 1
                path = self.key()
                if path is None or not self.text.startswith("]", self.at):
                    return self.lines
                table = path
                self.note(table)
                self.at = self.text.find("\n", self.at)
                if self.at < 0:
                    return self.lines
                continue
            path = self.key()
            if path is None or not self.text.startswith("=", self.at):
                return self.lines
            self.note(table + path)
            self.at += 1
            if not self.value():
                return self.lines


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The card's bytes, or a fault that says why there are none."""
    place = str(path)

    def refuse(given: str, allowed: str = "a readable TOML file of at most 1 MiB") -> NoReturn:
        raise CardFaultError([Problem("", "", given, allowed, file=place)])

    try:
        state = Path(path).stat()
        if stat.S_ISDIR(state.st_mode):
            refuse("a directory")
        if not stat.S_ISREG(state.st_mode):
            refuse("something that is no regular file")
        with Path(path).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as err:
        refuse((err.strerror or str(err)) if isinstance(err, OSError) else str(err))
    return raw


def parse(raw: bytes, file: str = "") -> tuple[dict[str, Any], Lines]:
    """A card's table and the line of each key. Raises CardFaultError."""

    def refuse(given: str, allowed: str, line: int = 0, column: int = 0) -> NoReturn:
        raise CardFaultError([Problem("", "", given, allowed, line=line, column=column, file=file)])

    if len(raw) > MAX_BYTES:
        refuse("more than 1 MiB", "at most 1 MiB")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as err:
        before = raw[: err.start]
        line = before.count(b"\n") + 1
        refuse(f"byte 0x{raw[err.start]:02x}", "UTF-8", line, err.start - before.rfind(b"\n"))
    if not text.strip():
        refuse("an empty file", "a card")
    if text.startswith("\ufeff"):
        refuse("a byte-order mark", "UTF-8 without a byte-order mark", 1, 1)
    lines = _Scan(text, file).run()
    try:
        return tomllib.loads(text), lines
    except (ValueError, RecursionError) as err:
        message = str(err) or "nested too deeply"
        found = _AT.search(message)
        line, column = (int(found[1]), int(found[2])) if found and found[1] else (text.count("\n") + 1, 0)
        if isinstance(err, RecursionError) or not found:
            line = column = 0
        refuse(_AT.sub("", message), "TOML", line, column)


def _bare(key: str) -> str:
    return (
        key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False).replace("\x7f", "\\u007F")
    )


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, list):
        return "[" + ", ".join(_scalar(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_bare(key)} = {_scalar(item)}" for key, item in value.items()) + "}"
    return repr(value)


def dump(card: dict[str, Any], _prefix: str = "") -> str:
    """A table as TOML text: plain keys first, then one block for each table."""
    plain = [f"{_bare(key)} = {_scalar(value)}" for key, value in card.items() if not isinstance(value, dict)]
    blocks = ["\n".join(plain)] if plain else []
    for key, value in card.items():
        if isinstance(value, dict):
            name = f"{_prefix}{_bare(key)}"
            inner = dump(value, name + ".")
            blocks.append(f"[{name}]\n{inner}" if inner else f"[{name}]\n")
    return "\n".join(blocks) + "\n"
