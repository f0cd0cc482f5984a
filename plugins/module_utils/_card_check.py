# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""A card against the table of fields: keys, types, ranges, choices. Relations between fields are in `_card_rules`."""

from __future__ import annotations

import difflib
import math
import re
from typing import Any

from ._card_error import Problem
from ._card_fields import LAYOUT_FIELDS, MAX_NODES
from ._card_schema import (
    IGNORED_KEYS,
    IGNORED_RUNTIME,
    IGNORED_RUNTIME_PREFIXES,
    IGNORED_TABLES,
    KNOWN_VLLM,
    TABLES,
    Field,
    fields,
    tables,
)

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Suggestions are costly; a card with more unknown keys than this is not a card with typos.
_MOST_SUGGESTIONS = 40
# An upper bound that only keeps numbers exact is no news to a person.
_BEYOND = 2**53

_TYPES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "strs": "a list of texts",
    "size": 'bytes, or a size such as "98G" (powers of 1024)',
    "table": "a table",
    "env": "a table of texts by variable name",
    "layouts": f"tables named by a number of nodes from 1 to {MAX_NODES}",
}


def _figure(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def allowed(field: Field) -> str:
    """What a field may hold, in words."""
    words = _TYPES[field.kind]
    if field.choices:
        words = "one of " + ", ".join(field.choices)
    elif field.shape:
        words = field.shape
    if field.low is not None and field.high is not None:
        words += (
            f" of at least {_figure(field.low)}"
            if field.high >= _BEYOND
            else (f" from {_figure(field.low)} to {_figure(field.high)}")
        )
    return words


def parse_size(value: Any) -> int | None:
    """Bytes of a size, or None where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip())
        if found:
            number = float(found[1]) if "." in found[1] else int(found[1])
            return int(number * _UNITS[found[2].lower()])
    return None


def coerce(field: Field, value: Any) -> Any:
    """A value of an inventory as its field's type: `-e` variables arrive as text."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if field.kind == "bool" and text.lower() in ("true", "false", "yes", "no"):
        return text.lower() in ("true", "yes")
    if field.kind in ("int", "size") and re.fullmatch(r"[+-]?\d{1,19}", text):
        return int(text)
    if field.kind == "float" and re.fullmatch(r"[+-]?\d{1,19}(\.\d{1,19})?([eE][+-]?\d{1,3})?", text):
        return float(text)
    return value


def _plain(value: Any, depth: int = 0) -> bool:
    """Whether a value can be said in JSON."""
    if depth > 32:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item, depth + 1) for key, item in value.items())
    if isinstance(value, list):
        return all(_plain(item, depth + 1) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int, str))


def _text_ok(value: str) -> bool:
    """Control characters have no place in an argument or a unit; a newline may stand in a prompt."""
    return not _CONTROL.search(value)


class Check:
    """The outcome of a check: values by path, faults, notes and warnings."""

    def __init__(self, engine: str = KNOWN_VLLM) -> None:
        self.engine = engine
        self.values: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.suggested = 0

    def bad(self, table: str, key: str, given: Any, words: str, nearest: str = "") -> None:
        self.problems.append(Problem(table, key, given, words, nearest=nearest))

    def value(self, field: Field, value: Any, table: str = "", key: str = "") -> Any:
        """The value normalised, or None after a fault."""
        where = (table or field.table, key or field.key)
        if field.kind == "env":
            return self._env(field, value)
        normal = _normal(field, value)
        if normal is None:
            self.bad(*where, value, allowed(field))
            return None
        if isinstance(normal, str):
            if field.choices and normal not in field.choices:
                return self._choice(field, normal, where)
            if field.pattern and not re.fullmatch(field.pattern, normal):
                self.bad(*where, value, allowed(field))
                return None
        return normal

    def _choice(self, field: Field, value: str, where: tuple[str, str]) -> str | None:
        """A value outside the choices: a later engine may know it, this one does not."""
        from_vllm = field.flag or field.path == "runtime.vllm_spec_method"
        if from_vllm and self.engine != KNOWN_VLLM:
            self.warnings.append(
                f"{field.path}: {value!r} is not checked: choices are known for vLLM {KNOWN_VLLM} only"
            )
            return value
        words = allowed(field)
        if value in field.later:
            words += f" (vLLM {KNOWN_VLLM} has no {value}; a card for a later release says so in engine.vllm)"
        self.bad(*where, value, words, self.near(value, field.choices))
        return None

    def near(self, word: str, known: Any) -> str:
        """The nearest known word."""
        self.suggested += 1
        if self.suggested > _MOST_SUGGESTIONS or len(word) > 80:
            return ""
        longer = [name for name in known if name.startswith(word)]
        found = longer if len(longer) == 1 else difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
        return found[0] if found else ""

    def unknown(self, table: str, key: str, value: Any) -> None:
        """A key that no field has: a typo, or a key of another table."""
        nearest = ""
        homes = [path for path, field in fields().items() if field.key == key]
        if homes and self.suggested <= _MOST_SUGGESTIONS:
            self.suggested += 1
            nearest = homes[0]
        else:
            known = [*tables().get(table, {}), *(TABLES if not table else ())]
            nearest = self.near(key, known)
            if not nearest:
                last = self.near(key, [field.key for field in fields().values()])
                nearest = next((path for path, field in fields().items() if field.key == last), "")
        place = f"[{table}]" if table else "the top level"
        self.bad(table, key, value, f"a key of {place}", nearest)

    def _env(self, field: Field, value: Any) -> dict[str, str] | None:
        if not isinstance(value, dict):
            self.bad(field.table, field.key, value, allowed(field))
            return None
        found: dict[str, str] = {}
        for name, item in value.items():
            if not _ENV_NAME.fullmatch(name):
                self.bad(field.path, name, name, "a variable's name: letters, digits and _")
            elif not isinstance(item, str) or not _text_ok(item) or "\n" in item:
                self.bad(field.path, name, item, 'text on one line, quoted: "1" rather than 1')
            else:
                found[name] = item
        return found

    def layouts(self, value: Any) -> dict[str, dict[str, int]] | None:
        if not isinstance(value, dict):
            self.bad("", "layouts", value, _TYPES["layouts"])
            return None
        found: dict[str, dict[str, int]] = {}
        for name, sizes in value.items():
            if not (re.fullmatch(r"[1-9]\d?", name) and int(name) <= MAX_NODES) or not isinstance(sizes, dict):
                self.bad("layouts", name, sizes, _TYPES["layouts"])
                continue
            found[name] = {}
            for key, size in sizes.items():
                field = LAYOUT_FIELDS.get(key)
                if field is None:
                    self.bad(f"layouts.{name}", key, size, "a size of [parallel]", self.near(key, LAYOUT_FIELDS))
                    continue
                normal = self.value(field, size, f"layouts.{name}", key)
                if normal is not None:
                    found[name][key] = normal
        return found


def _normal(field: Field, value: Any) -> Any:
    """The value in its field's own type, or None."""
    kind = field.kind
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if kind == "str":
        return value if isinstance(value, str) and _text_ok(value) else None
    if kind == "strs":
        good = isinstance(value, list) and all(isinstance(item, str) and _text_ok(item) for item in value)
        return list(value) if good else None
    if kind == "table":
        return value if isinstance(value, dict) and _plain(value) else None
    number: int | float | None = None
    if kind == "size":
        number = parse_size(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if kind == "int":
            number = value if isinstance(value, int) else None
        elif isinstance(value, float) and not math.isfinite(value):
            number = None
        elif -(2**63) < value < 2**63:
            number = float(value)
    if number is None:
        return None
    inside = (field.low is None or number >= field.low) and (field.high is None or number <= field.high)
    return number if inside else None


def _ignored(table: str, key: str, value: Any) -> bool:
    if not table:
        return key in IGNORED_KEYS or (key in IGNORED_TABLES and isinstance(value, (dict, list)))
    return table == "runtime" and (key in IGNORED_RUNTIME or key.startswith(IGNORED_RUNTIME_PREFIXES))


def check(data: dict[str, Any], engine: str = KNOWN_VLLM) -> Check:
    """Every key of a card against the table."""
    result = Check(engine)
    known = tables()
    for key, value in data.items():
        if key in known and key:
            if not isinstance(value, dict):
                result.bad("", key, value, f"a table: [{key}]")
                continue
            for inner, item in value.items():
                _one(result, key, inner, item)
        else:
            _one(result, "", key, value)
    for path, field in fields().items():
        if field.required and path not in result.values:
            already = any(problem.path == path for problem in result.problems)
            if not already:
                result.bad(field.table, field.key, None, "this key is required: " + allowed(field))
    return result


def _one(result: Check, table: str, key: str, value: Any) -> None:
    field = tables()[table].get(key)
    if field is None:
        if _ignored(table, key, value):
            place = f"{table}.{key}" if table else key
            result.notes.append(f"{place}: belongs to other engines, ignored")
        else:
            result.unknown(table, key, value)
        return
    normal = result.layouts(value) if field.kind == "layouts" else result.value(field, value)
    if normal is not None:
        result.values[field.path] = normal
