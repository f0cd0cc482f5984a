"""The table of docs/reliability.md, made from what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .judge import Result

BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"


def rows(results: Iterable[Result]) -> str:
    """The results as a table."""
    lines = ["| fault | serving again after | restarts | requests: answered, refused, hung |", "|---|---|---|---|"]
    lines += [
        f"| {r.fault.title} | {r.back_s:.0f} s | {r.restarts} | {r.answered}, {r.refused}, {r.hung} |" for r in results
    ]
    return "\n".join(lines)


def write(path: Path, results: Iterable[Result]) -> None:
    """Replace the table between the marks."""
    text = path.read_text(encoding="utf-8")
    before, mark, rest = text.partition(BEGIN)
    _, closing, after = rest.partition(END)
    if not mark or not closing:
        raise ValueError(f"{path}: the marks {BEGIN} and {END} are not there")
    path.write_text(f"{before}{BEGIN}\n{rows(results)}\n{END}{after}", encoding="utf-8")
