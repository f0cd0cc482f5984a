# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The table of cards."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _card_list
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card import card_info

from tests.unit.plugins.module_utils.card_makers import BUNDLED, CARDS

SPARK = 121 * 2**30
REFERENCE = "poolside--Laguna-S-2.1-FP8"
INT4 = "Intel--Qwen3.5-397B-A17B-int4-AutoRound"


def read(name: str, memory: int = SPARK) -> dict[str, Any]:
    return card_info(name, [CARDS], node_memory_bytes=memory, listing=True)


def test_a_line_a_card_with_its_head() -> None:
    lines = _card_list.table([read(name) for name in BUNDLED], 2).splitlines()
    assert lines[0].split() == ["card", "size", "nodes", "context", "speculation", "status", "fits", "here"]
    assert [line.split()[0] for line in lines[1:]] == BUNDLED
    line = next(line for line in lines if line.startswith(REFERENCE + " "))
    assert line.split() == [
        REFERENCE,
        "113.51",
        "GiB",
        "2",
        "262,144",
        "dflash",
        "6",
        "measured",
        "yes,",
        "on",
        "2",
        "nodes",
    ]


@pytest.mark.parametrize(
    ("name", "nodes", "memory", "words"),
    [
        (REFERENCE, 0, SPARK, "no nodes given"),
        (REFERENCE, 1, SPARK, "no: needs 2 nodes"),
        (REFERENCE, 2, SPARK, "yes, on 2 nodes"),
        (REFERENCE, 5, SPARK, "yes, on 2 nodes"),
        (REFERENCE, 2, 24 * 2**30, "no: too large"),
        (REFERENCE, 2, 80 * 2**30, "perhaps: tight"),
        (INT4, 2, SPARK, "yes, on 2 nodes"),
        (INT4, 2, 90 * 2**30, "no: too large"),
        (INT4, 4, 90 * 2**30, "yes, on 3 nodes"),
        ("Qwen--Qwen3.6-27B-FP8", 2, SPARK, "yes"),
    ],
)
def test_whether_it_fits_here(name: str, nodes: int, memory: int, words: str) -> None:
    assert _card_list.row(read(name, memory), nodes)[-1] == words


def test_a_bad_card_is_a_line() -> None:
    errors = [{"subject": "mine.toml:3: serve.x"}, {}]
    row = _card_list.row({"failed": True, "item": "/cards/mine.toml", "errors": errors}, 2)
    assert (row[0], row[5], row[6]) == ("mine", "bad", "2 error(s): mine.toml:3: serve.x")
    assert _card_list.row({"failed": True, "msg": "broken"}, 2)[6] == "0 error(s): broken"
