# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Random and mutated cards: an error list or a result, never a traceback, never slow, and stable.

CARD_EXAMPLES sets how many cards each property tries; a release tries 100,000 in all.
"""

from __future__ import annotations

import copy
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _card
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_error import CardFaultError, Problem
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_schema import fields, serve_flags
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_toml import dump, parse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.plugins.module_utils.card_makers import BUNDLED, CARDS, card

EXAMPLES = int(os.environ.get("CARD_EXAMPLES", "300"))
MOST_SECONDS = 0.05
DATA: dict[str, dict[str, Any]] = {name: parse((CARDS / f"{name}.toml").read_bytes())[0] for name in BUNDLED}
WHOLE = sorted(name for name in BUNDLED if "extends" not in DATA[name])
BYTES = {name: (CARDS / f"{name}.toml").read_bytes() for name in WHOLE}
tried = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalar = st.one_of(
    st.booleans(), st.integers(-(2**62), 2**62), st.integers(0, 300), st.floats(), text,
    st.sampled_from(["98G", "FP8", "mtp", "dflash", "ngram", "owner/Model-NVFP4", "auto", "ray", "mp", "0" * 40,
                     "--max-model-len", "--x", "vllm-cuda", "TextGeneration", "fp8", "{VLLM_IP}", "%n $x \\ \" '"]),
)  # fmt: skip
plain = st.recursive(scalar, lambda inner: st.lists(inner, max_size=2), max_leaves=3)
value = st.one_of(scalar, st.lists(scalar, max_size=3), st.dictionaries(text, scalar, max_size=3))


def fitting(path: str) -> st.SearchStrategy[Any]:
    """Mostly what the field takes, so that cards get past the check of types."""
    field = fields()[path]
    if field.choices:
        return st.sampled_from(field.choices)
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(), "int": st.integers(int(field.low or 0), min(int(field.high or 300), 10**6)),
        "float": st.floats(field.low or 0, min(field.high or 1, 1000)), "str": text, "strs": st.lists(text, max_size=3),
        "size": st.one_of(st.integers(int(field.low or 0), 2**38), st.sampled_from(["1G", "98 GiB"])),
        "table": st.dictionaries(text, plain, max_size=2),
        "env": st.dictionaries(st.sampled_from(["A", "VLLM_X", "PATH", "1"]), text, max_size=2),
        "layouts": st.dictionaries(st.sampled_from(["1", "2", "3", "x"]), st.dictionaries(
            st.sampled_from(["tensor_parallel_size", "pipeline_parallel_size"]), st.integers(1, 4)), max_size=2),
    }  # fmt: skip
    return kinds[field.kind]


paths = st.sampled_from(sorted(fields()))
change = st.one_of(paths.flatmap(lambda path: st.tuples(st.just(path), fitting(path))), st.tuples(paths, value),
                   st.tuples(st.from_regex(r"[a-z_]{1,12}(\.[a-z_]{1,12}){0,2}", fullmatch=True), value))  # fmt: skip


cut = st.tuples(st.integers(0, 4000), st.integers(0, 40), st.binary(max_size=6))
anywhere = st.one_of(paths, st.text(max_size=12), st.just("serve"), st.just("environment.all.A"))
anything = st.one_of(st.none(), value, st.integers(0, 9).map(str), st.dictionaries(text, value, max_size=2))


def outcome(path: Path, **more: Any) -> dict[str, Any] | None:
    """A result, or None after a fault that says what is wrong; fails on anything else, and where it takes long."""
    spent = MOST_SECONDS
    # A pause of the interpreter is not the card's; a slow card is slow each time.
    for _attempt in range(4):
        found: dict[str, Any] | None = None
        problems: list[Problem] = []
        start = time.process_time()
        try:
            found = _card.card_info(str(path), [CARDS], **more)
        except CardFaultError as err:
            problems = err.problems
        spent = min(spent, time.process_time() - start)
        if spent < MOST_SECONDS:
            break
    assert spent < MOST_SECONDS
    if found is None:
        assert problems
        assert all(problem.allowed for problem in problems)
        json.dumps([problem.as_dict() for problem in problems], allow_nan=False)
        return None
    json.dumps(found, allow_nan=False)
    _sound(found)
    return found


def _sound(found: dict[str, Any]) -> None:
    """What holds for every argument list, whatever the card."""
    for arguments in [found["serve_argv"], *found["rank_argv"]]:
        assert all(isinstance(word, str) and "\0" not in word for word in arguments)
        own = arguments[: len(arguments) - len(found["card"]["extra_args"])]
        assert arguments[len(own) :] == found["card"]["extra_args"]
        flags = [word for word in own if word in serve_flags()]
        assert len(flags) == len(set(flags))
    assert found["nodes"]["min"] <= found["nodes"]["count"] <= found["nodes"]["max"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cards") / "card.toml"


def put(data: dict[str, Any], changes: list[tuple[str, Any]]) -> dict[str, Any]:
    data = copy.deepcopy(data)
    for path, item in changes:
        table: Any = data
        *parts, last = path.split(".")
        for part in parts:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                break
        else:
            table[last] = item
    return data


@tried
@given(st.sampled_from(WHOLE), st.lists(change, min_size=1, max_size=5), st.none() | st.integers(1, 5),
       st.none() | st.integers(1, 2**38))  # fmt: skip
def test_mutated_bundled_cards(
    place: Path, name: str, changes: list[tuple[str, Any]], nodes: int | None, memory: int | None
) -> None:
    place.write_text(dump(put(DATA[name], changes)), encoding="utf-8")
    found = outcome(place, models_root="/m", nodes=nodes, node_memory_bytes=memory)
    if found is not None:
        _stable(place, found, nodes, memory)


@tried
@given(changes=st.lists(change, max_size=6))
def test_random_cards(place: Path, changes: list[tuple[str, Any]]) -> None:
    place.write_text(dump(put(card(), changes)), encoding="utf-8")
    found = outcome(place)
    if found is not None:
        _stable(place, found)


def _stable(place: Path, found: dict[str, Any], nodes: int | None = None, memory: int | None = None) -> None:
    """The normalised card is a card again, with the same arguments, as often as one likes."""
    target = found["models"][0]["path"]
    root = str(Path(target).parent) if target else ""
    for _turn in range(2):
        place.write_text(dump(found["card"]), encoding="utf-8")
        again = outcome(place, models_root=root, nodes=nodes, node_memory_bytes=memory)
        assert again is not None
        for key in ("card", "serve_argv", "rank_argv", "ray_argv", "environment", "budget", "nodes", "models"):
            assert again[key] == found[key], key
        found = again


@tried
@given(st.sampled_from(WHOLE), st.lists(cut, min_size=1, max_size=4))
def test_cards_with_damaged_bytes(place: Path, name: str, cuts: list[tuple[int, int, bytes]]) -> None:
    raw = BYTES[name]
    for at, length, put_in in cuts:
        at %= len(raw)
        raw = raw[:at] + put_in + raw[at + length :]
        raw = raw or b"#"
    place.write_bytes(raw)
    outcome(place)


@tried
@given(raw=st.one_of(st.binary(max_size=300), st.text("ab[]{}=.\"'#\n ,1e-_\\", max_size=200).map(str.encode)))
def test_random_bytes(place: Path, raw: bytes) -> None:
    place.write_bytes(raw)
    outcome(place)


@tried
@given(st.sampled_from(WHOLE), st.dictionaries(anywhere, anything, max_size=4))
def test_random_overrides(name: str, overrides: dict[str, Any]) -> None:
    outcome(CARDS / f"{name}.toml", overrides=overrides)
