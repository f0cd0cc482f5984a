# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Shards, their headers and their index: whether they belong together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ._model_tree_types import INDEX, NUMBERED, SHARD, Tree, problem, read_json
from ._safetensors import Header, HeaderError, read_header


def _read_headers(root: Path, tree: Tree, trusted: Mapping[str, Header]) -> None:
    for name in tree.files:
        if not name.endswith(SHARD) or tree.files[name].size == 0:
            continue
        if name in trusted:
            tree.headers[name] = trusted[name]
            continue
        try:
            tree.headers[name] = read_header(root / name)
        except HeaderError as error:
            tree.problems.append(problem(name, error.kind, error.found, error.expected))
        except OSError as error:
            tree.problems.append(problem(name, "unreadable", error.strerror or str(error), "a readable file"))


def _read_index(root: Path, tree: Tree) -> dict[str, str] | None:
    """The weight map; None where there is no index or none that can be used."""
    if INDEX not in tree.files:
        return None
    try:
        weight_map = read_json(root / INDEX).get("weight_map")
    except ValueError as error:
        tree.problems.append(problem(INDEX, "bad_index", str(error), "a JSON object with weight_map"))
        return None
    if not isinstance(weight_map, dict) or not weight_map:
        tree.problems.append(problem(INDEX, "bad_index", "no weight_map", "tensors with the shard of each"))
        return None
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or "/" in shard or not shard.endswith(SHARD):
            expected = "the name of a safetensors file beside the index"
            tree.problems.append(problem(INDEX, "bad_index", f"{tensor[:80]} in {str(shard)[:80]!r}", expected))
            return None
    return weight_map


def _check_index(tree: Tree, weight_map: dict[str, str]) -> None:
    """The index against the shards that are there."""
    named = set(weight_map.values())
    present = {name for name in tree.files if name.endswith(SHARD) and "/" not in name}
    absent = sorted(named - present)
    strangers = sorted(present - named)
    if absent and strangers and {_family(name) for name in absent}.isdisjoint(map(_family, strangers)):
        found = f"names {absent[0]} and {len(named) - 1} more, but {strangers[0]} lies here"
        tree.problems.append(problem(INDEX, "foreign_index", found, "the index that belongs to these shards"))
        return
    for name in absent:
        tree.problems.append(problem(name, "absent_shard", "no such file", "the shard that the index names"))
    wanted: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        wanted.setdefault(shard, set()).add(tensor)
    for shard, tensors in sorted(wanted.items()):
        if shard not in tree.headers:
            continue
        held = set(tree.headers[shard].tensors)
        if lacking := sorted(tensors - held):
            elsewhere = next((n for n, h in tree.headers.items() if lacking[0] in h.tensors), "")
            found = f"without {lacking[0]}" + (f", which is in {elsewhere}" if elsewhere else "")
            found += f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            tree.problems.append(problem(shard, "foreign_shard", found, "the tensors that the index has in it"))
        if surplus := sorted(held - tensors - set(weight_map)):
            found = f"with {surplus[0]}" + (f" and {len(surplus) - 1} more" if len(surplus) > 1 else "")
            tree.problems.append(problem(shard, "foreign_shard", found, "only tensors that the index knows"))
        elif doubled := sorted(held - tensors):
            expected = f"in {weight_map[doubled[0]]}, by the index"
            tree.problems.append(problem(shard, "foreign_shard", f"with {doubled[0]}", expected))
    tree.notes += [f"{name} is not in the index" for name in strangers]


def _family(name: str) -> tuple[str, str]:
    """What shards of one checkpoint share: the stem and the count in their names."""
    match = NUMBERED.match(name)
    return (match["stem"], match["count"]) if match else (name, "")


def _check_numbers(tree: Tree) -> None:
    """Without an index the names still say how many shards there must be."""
    families: dict[tuple[str, str], set[int]] = {}
    for name in tree.files:
        if match := NUMBERED.match(name):
            families.setdefault((match["stem"], match["count"]), set()).add(int(match["number"]))
    for (stem, count), numbers in sorted(families.items()):
        for number in range(1, min(int(count), 10_000) + 1):
            if number not in numbers:
                name = f"{stem}-{number:0{len(count)}d}-of-{count}{SHARD}"
                found = f"no such file ({len(numbers)} of {int(count)} are here)"
                tree.problems.append(problem(name, "absent_shard", found, "every shard that the names count"))
    if families:
        tree.problems.append(problem(INDEX, "no_index", "no such file", "the index of the shards"))


def check_weights(root: Path, tree: Tree, trusted: Mapping[str, Header]) -> None:
    """Add what is wrong with the weights; `trusted` holds headers of files known to be as they were."""
    _read_headers(root, tree, trusted)
    weight_map = _read_index(root, tree)
    if weight_map is not None:
        _check_index(tree, weight_map)
    elif INDEX not in tree.files:
        _check_numbers(tree)
    if not tree.shards and weight_map is None:
        others = [name for name in tree.files if name.endswith((".bin", ".gguf", ".pt", ".pth"))]
        found = f"{others[0]}, which is not safetensors" if others else "no safetensors file"
        tree.problems.append(problem("*" + SHARD, "no_weights", found, "the weights as safetensors"))
