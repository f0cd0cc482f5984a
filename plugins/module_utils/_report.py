# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""One shape for what is wrong, and one text for a person to read it in.

A fault is a dict with the keys of `Fault`. Checks return lists of them; nothing raises on the first, so that one
report can name everything that is wrong on every host before anything is changed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict


class Fault(TypedDict):
    """What is wrong with one thing on one host."""

    host: str
    subject: str
    found: str
    expected: str
    cure: str


def fault(host: str, subject: str, found: str, expected: str, cure: str) -> Fault:
    """A fault; every part is a sentence fragment without a final stop."""
    return Fault(host=host, subject=subject, found=found, expected=expected, cure=cure)


def _block(item: Mapping[str, Any]) -> str:
    """One fault as an indented paragraph."""
    lines = [f"  [{item.get('host') or 'all hosts'}] {item.get('subject', '')}"]
    for key in ("found", "expected", "cure"):
        text = str(item.get(key) or "").strip()
        if text:
            label = f"      {key + ':':<10}"
            lines.append(textwrap.indent(text, " " * len(label)).replace(" " * len(label), label, 1))
    return "\n".join(lines)


def format_report(errors: Iterable[Mapping[str, Any]], warnings: Iterable[Mapping[str, Any]] = ()) -> str:
    """The report as text: errors first, then warnings, each once, in the order given.

    Returns an empty string where there is nothing to say.
    """
    parts: list[str] = []
    for title, items in (("error", errors), ("warning", warnings)):
        blocks = list(dict.fromkeys(_block(item) for item in items))
        if blocks:
            count = f"{len(blocks)} {title}{'s' if len(blocks) > 1 else ''}"
            parts.append("\n".join([f"{count}:", *blocks]))
    return "\n".join(parts)
