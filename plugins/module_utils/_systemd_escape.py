# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Argument lists and variables as systemd reads them in a unit file: what goes in comes out, byte for byte.

systemd takes a line apart in four steps, and each has to be undone in advance: words and quotes with C escapes,
`%` specifiers, `;` as a word of its own, and `$` expansion when the process is started.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

# systemd reads lines of up to 1 MiB.
MAX_LINE = 1 << 20
# Words made of these alone need no quotes. `$` and `%` are doubled before.
_BARE = re.compile(r"[A-Za-z0-9_@%$+=:,./-]+")
# What systemd refuses in the path of a program, however it is written.
_UNSAFE = re.compile(r"""["'\\\x00-\x1f\x7f]""")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _quoted(text: str) -> str:
    """A word in double quotes, control characters as C escapes."""
    parts = []
    for char in text:
        if char in _ESCAPES:
            parts.append(_ESCAPES[char])
        elif ord(char) < 32 or ord(char) == 127:
            parts.append(f"\\x{ord(char):02x}")
        else:
            parts.append(char)
    return '"' + "".join(parts) + '"'


def _checked(value: object, what: str) -> str:
    text = value if isinstance(value, str) else str(value)
    if isinstance(value, (list, dict, tuple, set)) or value is None or isinstance(value, bool):
        raise ValueError(f"{what}: {value!r} is no text")
    if "\0" in text:
        raise ValueError(f"{what}: a NUL cannot be in an argument")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as err:
        raise ValueError(f"{what}: {text!r} is no UTF-8") from err
    return text


def word(value: object) -> str:
    """One argument of ExecStart=."""
    text = _checked(value, "argument").replace("%", "%%").replace("$", "$$")
    return text if _BARE.fullmatch(text) else _quoted(text)


def argv(values: Sequence[object], program: bool = False) -> str:
    """A list of arguments as the text after `ExecStart=`.

    With `program` the first is the file that is started. It has to be an absolute path; systemd expands `$` in the
    process's name but not in the path, so that a path with `$` is written once for each.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise ValueError("a list of arguments is needed, not text")
    words = [word(value) for value in values]
    if program:
        path = _checked(values[0] if values else "", "program")
        if not path.startswith("/"):
            raise ValueError(f"program: {path!r} is no absolute path")
        if _UNSAFE.search(path):
            raise ValueError(f"program: systemd starts nothing whose path has quotes or backslashes, as {path!r} has")
        if "$" in path:
            first = "@" + path.replace("%", "%%")
            words.insert(0, first if _BARE.fullmatch(first) else _quoted(first))
    text = " ".join(words)
    if len(text.encode()) >= MAX_LINE - 1024:
        raise ValueError("the arguments are longer than a line of a unit file can be")
    return text


def environment(values: Mapping[str, object]) -> str:
    """Variables as lines `Environment=…`, sorted by name. Here `$` means nothing to systemd, `%` does."""
    if not isinstance(values, Mapping):
        raise ValueError("a table of variables is needed")
    lines = []
    for name in sorted(values):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"variable {name!r}: a name has letters, digits and _")
        text = _checked(values[name], name)
        if any((ord(char) < 32 and char not in "\t\n") or ord(char) == 127 for char in text):
            raise ValueError(f"{name}: systemd drops a variable with control characters")
        pair = f"{name}={text}".replace("%", "%%")
        line = "Environment=" + (pair if _BARE.fullmatch(pair) else _quoted(pair))
        if len(line.encode()) >= MAX_LINE - 1024:
            raise ValueError(f"{name}: longer than a line of a unit file can be")
        lines.append(line)
    return "\n".join(lines)
