# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""A model card from file to everything that is derived from it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _budget, _budget_table, _card_layout, _card_render
from ._budget_log import of_start
from ._card_check import Check, check
from ._card_error import CardFaultError
from ._card_load import Source, load, override
from ._card_rules import RULES, Card, graphs
from ._card_schema import KNOWN_VLLM, fields

_MOST_CONFIG_BYTES = 1 << 20


def _nested(card: Card) -> dict[str, Any]:
    """The normalised card: what was set and what has a default, as tables."""
    found: dict[str, Any] = {}
    for path, field in fields().items():
        value = card.get(path)
        if value is None or path in ("extends", "unset"):
            continue
        table = found
        for part in [part for part in field.table.split(".") if part]:
            table = table.setdefault(part, {})
        table[field.key] = value
    return found


def _provenance(card: Card, source: Source) -> dict[str, str]:
    """Where each value came from: file and line, `overrides`, or `default`."""
    known = fields()
    given: dict[str, dict[str, str]] = {}
    for key, where in source.origin.items():
        path = key
        while path and path not in known:
            path = path.rpartition(".")[0]
        given.setdefault(path, {})[key] = where
    found: dict[str, str] = {}
    for path in known:
        if path in ("extends", "unset"):
            continue
        if path in card.values:
            found.update(given.get(path) or {path: source.file})
        elif card.get(path) is not None:
            found[path] = "default"
    return found


def _configs(card: Card, models_root: str, given: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """config.json of target and draft: handed in by role or folder, or staged under the models root of this machine."""
    found: dict[str, Mapping[str, Any]] = {}
    for role in ("target", "draft"):
        config = (given or {}).get(role)
        if isinstance(config, Mapping):
            found[role] = config
    if "model_id" in card.values:
        for model in _card_render.models(card, models_root):
            config = (given or {}).get(model["name"])
            if model["role"] not in found and isinstance(config, Mapping):
                found[model["role"]] = config
            path = Path(model["path"]) / "config.json"
            try:
                if models_root and model["role"] not in found and path.stat().st_size <= _MOST_CONFIG_BYTES:
                    config = json.loads(path.read_bytes())
                    if isinstance(config, dict):
                        found[model["role"]] = config
            except (OSError, ValueError, RecursionError):
                continue
    return found


def _fail(result: Check, source: Source) -> None:
    for problem in result.problems:
        if not problem.file:
            problem.file, line = source.place(problem.path)
            problem.line = problem.line or line
    raise CardFaultError(result.problems)


def normalise(
    source: Source, models_root: str = "", configs: Mapping[str, Any] | None = None, nodes: int | None = None
) -> tuple[Card, _card_layout.Layout, dict[int, _card_layout.Layout]]:
    """Check a loaded card and choose its division. Raises CardFaultError with all faults."""
    engine = source.data.get("engine")
    release = engine.get("vllm") if isinstance(engine, dict) else None
    result = check(source.data, release if isinstance(release, str) else KNOWN_VLLM)
    card = Card(result)
    card.configs = _configs(card, models_root, configs)
    for rule in RULES:
        rule(card)
    found = _card_layout.layouts(card.get, result.problems)
    layout = _card_layout.choose(found, card.get, nodes) if found else ""
    if isinstance(layout, str):
        if layout:
            result.bad("nodes", "min", f"{nodes} node(s) at hand", layout)
    else:
        graphs(card, layout)
    if result.problems or isinstance(layout, str):
        _fail(result, source)
    assert not isinstance(layout, str)  # _fail raised
    return card, layout, found


def card_info(
    src: str,
    folders: Sequence[str | os.PathLike[str]],
    overrides: Mapping[str, Any] | None = None,
    models_root: str = "",
    nodes: int | None = None,
    node_memory_bytes: int | None = None,
    host: str = "",
    port: int | None = None,
    master_addr: str = "",
    configs: Mapping[str, Any] | None = None,
    measured: Mapping[str, Any] | None = None,
    listing: bool = False,
) -> dict[str, Any]:
    """Everything that follows from a card. Raises CardFaultError."""
    source = load(src, folders)
    if overrides:
        override(source, overrides)
    card, layout, found = normalise(source, models_root, configs, nodes)
    models = _card_render.models(card, models_root)
    endpoint = _card_render.Endpoint(models_root, host, port, master_addr or "{VLLM_HEAD_IP}")
    ranks: list[list[str]] = []
    if layout.executor == "mp" and layout.nodes > 1:
        ranks = [_card_render.serve_argv(card, layout, endpoint, rank) for rank in range(layout.nodes)]
    serve_argv = ranks[0] if ranks else _card_render.serve_argv(card, layout, endpoint)
    environment = {scope: dict(card.get(f"environment.{scope}")) for scope in ("all", "head", "worker")}
    start = hashlib.sha256(json.dumps([serve_argv, ranks, environment], sort_keys=True).encode()).hexdigest()
    budget = _budget.budget(card, layout, found, node_memory_bytes, of_start(measured, start))
    if budget.problems and not listing:
        card.result.problems.extend(budget.problems)
        _fail(card.result, source)
    warnings = list(card.result.warnings) + budget.warnings
    if card.get("status") == "untested":
        warnings.append(f"{source.name}: this card is untested; nobody has reported a run of it")
    return {
        "name": source.name,
        "file": source.file,
        "card": _nested(card),
        "status": card.get("status"),
        "serve_argv": serve_argv,
        "rank_argv": ranks,
        "environment": environment,
        "start_sha256": start,
        "ray_argv": _card_render.ray_argv(card),
        "caps": {role: card.get(f"memory.{role}") for role in ("head", "worker", "driver")},
        "models": models,
        "patches": list(card.get("patches")),
        "expect": {path.removeprefix("expect."): card.get(path) for path in fields() if path.startswith("expect.")},
        "executor": layout.executor,
        "nodes": {"min": card.get("nodes.min") or min(found), "max": card.get("nodes.max") or max(found),
                  "count": layout.nodes},
        "devices": layout.devices,
        "served_name": _card_render.served_name(card),
        "engine": {"vllm": card.get("engine.vllm"), "variant": card.get("engine.variant"),
                   "nccl": card.get("engine.nccl")},
        "required": {"disk_bytes": sum(model["bytes"] or 0 for model in models), "memory_bytes": budget.needed},
        "budget": budget.rows,
        "budget_text": _budget_table.table(budget.rows),
        "fits": budget.fits,
        "fits_by_nodes": {str(count): budget.answers[count] for count in sorted(found) if count in budget.answers},
        "verdict": budget.verdict,
        "provenance": _provenance(card, source),
        "notes": [*card.result.notes, *budget.notes, *(problem.text() for problem in budget.problems)],
        "warnings": warnings,
    }  # fmt: skip
