"""The table of docs/reliability.md, made from what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .catalog import FAULTS
from .judge import Result

BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"


HEAD = ["| fault | serving again after | restarts | requests: answered, refused, hung |", "|---|---|---|---|"]


def row(r: Result) -> str:
    """One result as a line."""
    return f"| {r.fault.title} | {r.back_s:.0f} s | {r.restarts} | {r.answered}, {r.refused}, {r.hung} |"


def rows(results: Iterable[Result]) -> str:
    """The results as a table."""
    return "\n".join([*HEAD, *map(row, results)])


def write(path: Path, results: Iterable[Result]) -> None:
    """Put the results between the marks, in the place of earlier ones of the same faults."""
    text = path.read_text(encoding="utf-8")
    before, mark, rest = text.partition(BEGIN)
    old, closing, after = rest.partition(END)
    if not mark or not closing:
        raise ValueError(f"{path}: the marks {BEGIN} and {END} are not there")
    lines = {line.split("|")[1].strip(): line for line in old.splitlines() if line.startswith("| ")}
    lines |= {result.fault.title: row(result) for result in results}
    kept = [lines[fault.title] for fault in FAULTS if fault.title in lines]
    path.write_text("\n".join([before + BEGIN, *HEAD, *kept, END + after]), encoding="utf-8")
