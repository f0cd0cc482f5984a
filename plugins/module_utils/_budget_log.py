# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The engine's own figures of its KV pool, as its log tells them at every start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_LOG = {
    "kv_tokens": re.compile(r"KV cache size: ([\d,]+) tokens"),
    "contexts": re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"),
    "kv_gib": re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
}


def measured_from_log(text: str) -> dict[str, float]:
    """`kv_tokens` of the pool, full `contexts` it holds, `kv_gib` of it a rank; the last start in the log counts."""
    found: dict[str, float] = {}
    for name, pattern in _LOG.items():
        hits = pattern.findall(text)
        if hits:
            found[name] = float(hits[-1].replace(",", ""))
    return found


def of_start(measured: Mapping[str, Any] | None, start: str) -> Mapping[str, Any]:
    """The figures, where they were measured under the very start that is asked about; a caller's own name none."""
    measured = measured or {}
    return measured if measured.get("start_sha256", start) == start else {}
