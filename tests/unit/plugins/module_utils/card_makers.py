# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Cards for the tests: a smallest one, with changes by dotted key."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _card
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_error import CardFaultError, Problem
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_load import Source
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_render import Endpoint, serve_argv

CARDS = Path(__file__).resolve().parents[4] / "cards"
BUNDLED = sorted(path.stem for path in CARDS.glob("*.toml"))
SMALLEST: dict[str, Any] = {
    "model_id": "owner/Model",
    "n_layers": 48,
    "hidden_size": 3072,
    "supports_tensor": True,
    "tasks": ["TextGeneration"],
    "storage_size": {"in_bytes": 1_000_000_000},
}


def card(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The smallest card with some keys set; None takes a key away."""
    data = copy.deepcopy(SMALLEST)
    for path, value in (changes or {}).items():
        table = data
        *parts, last = path.split(".")
        for part in parts:
            table = table.setdefault(part, {})
        if value is None:
            table.pop(last, None)
        else:
            table[last] = value
    return data


def normal(changes: dict[str, Any] | None = None, **more: Any) -> Any:
    """Card, division and divisions of a changed smallest card."""
    return _card.normalise(Source("test", "", card(changes)), **more)


def argv(changes: dict[str, Any] | None = None, root: str = "/m", **more: Any) -> list[str]:
    found, layout, _all = normal(changes, **more)
    return serve_argv(found, layout, Endpoint(models_root=root))


def value(arguments: list[str], flag: str) -> str | None:
    """What stands after a flag; None without the flag."""
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def problems(changes: dict[str, Any], **more: Any) -> list[Problem]:
    """The faults of a changed smallest card; fails where there are none."""
    with pytest.raises(CardFaultError) as caught:
        normal(changes, **more)
    return caught.value.problems


def problem(changes: dict[str, Any], **more: Any) -> Problem:
    """The one fault of a changed smallest card."""
    found = problems(changes, **more)
    assert len(found) == 1, [item.text() for item in found]
    return found[0]
