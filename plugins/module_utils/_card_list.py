# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Cards as a table for people: size, nodes, context, speculation, status, and whether they fit here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ._budget_table import gib

HEAD = ("card", "size", "nodes", "context", "speculation", "status", "fits here")


def _speculation(card: Mapping[str, Any]) -> str:
    runtime = card.get("runtime", {})
    method = runtime.get("vllm_spec_method")
    if not method:
        return "-"
    depth = runtime.get("vllm_spec_num_tokens")
    return f"{method} {depth}" if depth else str(method)


def _nodes(bounds: Mapping[str, int]) -> str:
    low, high = bounds["min"], bounds["max"]
    return str(low) if low == high else f"{low}-{high}"


def _fits(found: Mapping[str, Any], nodes: int) -> str:
    """In words, for the largest division that the nodes at hand allow."""
    if not nodes:
        return "no nodes given"
    counts = [int(count) for count in found["fits_by_nodes"] if int(count) <= nodes]
    if not counts:
        return f"no: needs {found['nodes']['min']} nodes"
    answers = {count: found["fits_by_nodes"][str(count)] for count in counts}
    for count in sorted(counts):
        if answers[count]:
            return "yes" if count == 1 else f"yes, on {count} nodes"
    return "perhaps: tight" if None in answers.values() else "no: too large"


def row(result: Mapping[str, Any], nodes: int) -> tuple[str, ...]:
    """One line of the table, from one result of `card_info`; a bad card says what is wrong with it."""
    if result.get("failed") or "card" not in result:
        src = (result.get("invocation") or {}).get("src") or result.get("item") or "?"
        errors = result.get("errors") or []
        return (str(src).rpartition("/")[2].removesuffix(".toml"), "", "", "", "", "bad",
                f"{len(errors)} error(s): {errors[0]['subject'] if errors else result.get('msg', '')}")  # fmt: skip
    card = result["card"]
    length = card.get("serve", {}).get("max_model_len") or card.get("context_length") or 0
    return (
        str(result["name"]),
        gib(result["required"]["disk_bytes"]),
        _nodes(result["nodes"]),
        f"{length:,}" if length else "?",
        _speculation(card),
        str(result["status"]),
        _fits(result, nodes),
    )


def table(results: Iterable[Mapping[str, Any]], nodes: int = 0) -> str:
    """The table as text, sorted by name."""
    rows = [HEAD, *sorted(row(result, nodes) for result in results)]
    widths = [max(len(line[at]) for line in rows) for at in range(len(HEAD))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in rows
    )
