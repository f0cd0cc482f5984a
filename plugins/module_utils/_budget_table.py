# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The budget's table: lines with a value or a range, and their text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._card_error import Problem

GIB = 2**30
_WORDS = ("no node", "one node", "two nodes", "three nodes", "four nodes")


@dataclass
class Budget:
    """The table, and what follows from it."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    needed: int = 0
    fits: bool | None = None
    # Number of nodes -> whether it fits there, as far as they were tried.
    answers: dict[int, bool | None] = field(default_factory=dict)
    verdict: str = ""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def row(self, name: str, low: float | None, high: float | None, formula: str, unit: str = "bytes",
            source: str = "card") -> None:  # fmt: skip
        value = high if low == high else None
        self.rows.append(
            {"name": name, "unit": unit, "value": value, "low": low, "high": high, "formula": formula, "source": source}
        )

    def find(self, name: str) -> dict[str, Any]:
        return next(row for row in self.rows if row["name"] == name)


def gib(number: float) -> str:
    """Bytes for a person."""
    return f"{number / 2**20:.2f} MiB" if 0 < number < GIB / 16 else f"{number / GIB:.2f} GiB"


def shown(row: Mapping[str, Any]) -> str:
    low, high = row["low"], row["high"]
    if high is None:
        return "not known"
    if row["unit"] == "bytes":
        return gib(high) if low == high else f"{gib(low)} to {gib(high)}"
    text = "{:,.0f}" if row["unit"] == "tokens" else "{:,.2f}"
    if low is None:
        return "at most " + text.format(high)
    return text.format(high) if low == high else f"{text.format(low)} to {text.format(high)}"


def table(rows: list[dict[str, Any]]) -> str:
    """The budget as text for a person."""
    lines = [(str(row["name"]), shown(row), str(row["formula"])) for row in rows]
    if not lines:
        return ""
    first, second = (max(len(line[i]) for line in lines) for i in (0, 1))
    return "\n".join(f"{name:<{first}}  {value:>{second}}  {formula}".rstrip() for name, value, formula in lines)


def count_words(nodes: int) -> str:
    return _WORDS[nodes] if nodes < len(_WORDS) else f"{nodes} nodes"
