# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What is wrong with a card, and the exception that carries all of it at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

_LONGEST = 160


def shown(value: Any) -> Any:
    """A value as a report can carry it: plain, finite, and no longer than a line."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else "a number of " + str(value.bit_length()) + " bits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list of " + str(len(value))
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


@dataclass(slots=True)
class Problem:
    """One fault of a card, with where it is and what would be right."""

    table: str
    key: str
    given: Any
    allowed: str
    line: int = 0
    file: str = ""
    nearest: str = ""
    column: int = 0

    @property
    def path(self) -> str:
        return f"{self.table}.{self.key}" if self.table and self.key else self.table or self.key

    def as_dict(self) -> dict[str, Any]:
        """For a module's result; the second half is the shape that every report of the collection has."""
        return {
            "table": self.table,
            "key": self.key,
            "line": self.line,
            "column": self.column,
            "file": self.file,
            "given": shown(self.given),
            "allowed": self.allowed,
            "nearest": self.nearest,
            "host": "",
            "subject": self.where(),
            "found": str(shown(self.given)),
            "expected": self.allowed,
            "cure": f"use {self.nearest}" if self.nearest else f"put what is allowed into {self.file or 'the card'}",
        }

    def where(self) -> str:
        place = self.file or "the card"
        if self.line:
            place += f":{self.line}"
            if self.column:
                place += f":{self.column}"
        return f"{place}: {self.path}" if self.path else place

    def text(self) -> str:
        hint = f" (nearest: {self.nearest})" if self.nearest else ""
        return f"{self.where()}: given {shown(self.given)!r}, allowed: {self.allowed}{hint}"


@dataclass
class CardFaultError(Exception):
    """A card that cannot be used; `problems` holds everything that is wrong with it."""

    problems: list[Problem] = field(default_factory=list)

    def __str__(self) -> str:
        count = len(self.problems)
        head = f"{count} error{'s' if count != 1 else ''} in the card"
        return "\n".join([head + ":", *("  " + problem.text() for problem in self.problems)])
