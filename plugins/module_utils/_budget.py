# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Memory of a node under a card: one table, each line with its formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._card_error import Problem
from ._card_layout import Layout
from ._card_rules import Card


@dataclass
class Budget:
    rows: list[dict[str, Any]] = field(default_factory=list)
    needed: int = 0
    fits: bool | None = None
    verdict: str = ""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def budget(card: Card, layout: Layout, found: Mapping[int, Layout], node_memory: int | None,
           measured: Mapping[str, Any] | None = None) -> Budget:  # fmt: skip
    result = Budget()
    weights = card.get("storage_size.in_bytes") // (layout.tensor * layout.pipeline)
    result.needed = (
        weights + (card.get("speculative.draft_bytes") or 0) + (card.get("serve.kv_cache_memory_bytes") or 0)
    )
    result.needed += card.get("memory.activation") + card.get("memory.reserve")
    return result
