# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Secrets that a node makes once and keeps, one to a line in a file that only its user reads."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BYTES = 32
MODE = 0o600


class SecretError(Exception):
    """A secret that cannot be used; the text never holds it."""


@dataclass(frozen=True)
class Outcome:
    """What a file holds afterwards, and why it had to be touched (empty: it had not)."""

    values: list[str]
    reason: str


def make() -> str:
    """A new secret: letters, digits, `-` and `_` only, so that it needs no quoting anywhere."""
    return secrets.token_urlsafe(BYTES)


def check(values: Sequence[str], path: Path) -> None:
    """Whether the given values can stand in a file, one to a line, and in an HTTP header."""
    for number, value in enumerate(values, 1):
        if not value or not value.isascii() or not value.isprintable() or any(c in value for c in " \"'\\"):
            raise SecretError(f"{path}: secret {number} must be printable ASCII without spaces, quotes and backslashes")


def decide(path: Path, given: Sequence[str]) -> Outcome:
    """What the file should hold: the given values, else what it holds, else one new secret."""
    check(given, path)
    try:
        info = path.lstat()
    except FileNotFoundError:
        return Outcome(list(given) or [make()], "absent")
    if not stat.S_ISREG(info.st_mode):
        raise SecretError(f"{path}: is not a regular file; move it away")
    held = path.read_text(encoding="ascii", errors="replace").split()
    if given and held != list(given):
        return Outcome(list(given), "other values are declared")
    if not held:
        return Outcome([make()], "empty")
    return Outcome(held, f"mode {stat.S_IMODE(info.st_mode):04o}" if stat.S_IMODE(info.st_mode) != MODE else "")


def render(values: Sequence[str], variable: str = "") -> str:
    """The file's text: one secret a line, or the first as a line of an environment file."""
    return f"{variable}={values[0]}\n" if variable else "".join(f"{value}\n" for value in values)


def write(path: Path, text: str, uid: int, gid: int) -> None:
    """The file, readable by its user only, in one step."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
        os.fchown(file.fileno(), uid, gid)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
