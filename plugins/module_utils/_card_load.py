# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Finding a card, the cards it starts from, and the single keys an inventory overrides."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._card_check import coerce
from ._card_error import CardFaultError, Problem
from ._card_schema import fields
from ._card_toml import Lines, parse, read_bytes

_MOST_PARENTS = 8
_MOST_OVERRIDES = 500


@dataclass
class Source:
    """A card with everything that was merged into it, and where each key came from."""

    name: str
    file: str
    data: dict[str, Any]
    origin: dict[str, str] = field(default_factory=dict)

    def place(self, path: str) -> tuple[str, int]:
        """File and line of a key, or of the nearest table around it."""
        while path:
            if path in self.origin:
                where, _colon, line = self.origin[path].rpartition(":")
                return (where, int(line)) if line.isdigit() else (self.origin[path], 0)
            path = path.rpartition(".")[0]
        return self.file, 0


def bundled(folders: Sequence[str | os.PathLike[str]]) -> dict[str, Path]:
    """Cards by name in some folders; the first folder that has a name wins."""
    found: dict[str, Path] = {}
    for place in folders:
        base = Path(place)
        for path in sorted(base.glob("*.toml")) if base.is_dir() else ():
            found.setdefault(path.stem, path)
    return found


def find(src: str, folders: Sequence[str | os.PathLike[str]], beside: Path | None = None) -> Path:
    """The file of a card that was named by path or by name. Raises CardFaultError."""
    tried: list[Path] = []
    if "\0" not in src and src:
        bases = [beside] if beside else [Path()]
        if "/" in src or src.endswith(".toml"):
            tried = [base / Path(src).expanduser() for base in bases]
        name = src.replace("/", "--").removesuffix(".toml")
        tried += [Path(base) / f"{name}.toml" for base in ([beside] if beside else []) + list(map(Path, folders))]
        for path in tried:
            try:
                if path.exists():
                    return path
            except OSError:
                continue
    known = bundled(folders)
    near = difflib.get_close_matches(src.replace("/", "--")[:200], known, n=1)
    raise CardFaultError(
        [Problem("", "", src, "a card's path, or one of: " + ", ".join(known), nearest=near[0] if near else "")]
    )


def _leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and path.count(".") < 4:
            yield from _leaves(value, path + ".")
        else:
            yield path, value


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = value


def _drop(data: dict[str, Any], path: str) -> bool:
    parts = path.split(".")
    table: Any = data
    for part in parts[:-1]:
        table = table.get(part) if isinstance(table, dict) else None
    if not isinstance(table, dict) or parts[-1] not in table:
        return False
    del table[parts[-1]]
    return True


def _origin(data: Mapping[str, Any], lines: Lines, file: str) -> dict[str, str]:
    found = {}
    for path, _value in _leaves(data):
        parts = tuple(path.split("."))
        while parts and parts not in lines:
            parts = parts[:-1]
        found[path] = f"{file}:{lines.get(parts, 0)}" if parts else file
    return found


def load(src: str, folders: Sequence[str | os.PathLike[str]], _seen: tuple[str, ...] = (),
         _beside: Path | None = None) -> Source:  # fmt: skip
    """A card and the cards it extends, merged. Raises CardFaultError."""
    path = find(src, folders, _beside)
    file = str(path)
    data, lines = parse(read_bytes(path), file)
    parent = data.get("extends")
    line = lines.get(("extends",), 0)
    if parent is None:
        return Source(path.stem, file, data, _origin(data, lines, file))
    here = str(path.resolve())
    if here in _seen or len(_seen) >= _MOST_PARENTS:
        words = "a chain without a circle" if here in _seen else f"a chain of at most {_MOST_PARENTS} cards"
        raise CardFaultError([Problem("", "extends", parent, words, line=line, file=file)])
    if not isinstance(parent, str):
        raise CardFaultError([Problem("", "extends", parent, "a card's name or path", line=line, file=file)])
    try:
        base = load(parent, folders, (*_seen, here), path.parent)
    except CardFaultError as err:
        for problem in err.problems:
            if not problem.file:
                problem.key, problem.line, problem.file = "extends", line, file
        raise
    unset = data.get("unset", [])
    problems: list[Problem] = []
    for dropped in unset if isinstance(unset, list) else []:
        if not isinstance(dropped, str) or not _drop(base.data, dropped):
            at = lines.get(("unset",), 0)
            problems.append(Problem("", "unset", dropped, f"a key of {base.name}", line=at, file=file))
            continue
        base.origin = {p: w for p, w in base.origin.items() if p != dropped and not p.startswith(dropped + ".")}
    if problems:
        raise CardFaultError(problems)
    _merge(base.data, data)
    base.origin.update(_origin(data, lines, file))
    return Source(path.stem, file, base.data, base.origin)


def flatten(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides as dotted keys, whether they came so or as tables."""
    flat: dict[str, Any] = {}
    for key, value in overrides.items():
        known = fields().get(str(key))
        if isinstance(value, Mapping) and value and (known is None or known.kind in ("env", "table", "layouts")):
            flat.update(dict(_leaves({str(key): value})))
        else:
            flat[str(key)] = value
    return flat


def override(source: Source, overrides: Mapping[str, Any]) -> None:
    """Put an inventory's single keys over a card; null drops a key. Raises CardFaultError."""
    flat = flatten(overrides)
    problems = [
        Problem("", path, value, "a dotted key of at most 8 parts", file="overrides")
        for path, value in flat.items()
        if not 0 < len(path.split(".")) <= 8 or "" in path.split(".") or len(flat) > _MOST_OVERRIDES
    ]
    if problems:
        raise CardFaultError(problems[:_MOST_OVERRIDES])
    for path, value in flat.items():
        if value is None:
            _drop(source.data, path)
            source.origin = {p: w for p, w in source.origin.items() if p != path and not p.startswith(path + ".")}
            continue
        known = fields().get(path)
        table = source.data
        parts = path.split(".")
        for part in parts[:-1]:
            inner = table.get(part)
            if not isinstance(inner, dict):
                inner = table[part] = {}
            table = inner
        if parts[0] == "environment" and isinstance(value, int) and not isinstance(value, bool):
            # A template's number; a variable is a text.
            value = str(value)
        table[parts[-1]] = coerce(known, value) if known else value
        source.origin[path] = "overrides"
