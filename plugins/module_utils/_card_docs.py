# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What is generated from the table of fields: the page, the JSON Schema for editors, the module's documentation.

`python -m ansible_collections.dgx_spark.vllm.plugins.module_utils._card_docs ROOT` writes them into a checkout.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from ._card_check import allowed
from ._card_fields import LAYOUT_FIELDS
from ._card_schema import (
    IGNORED_KEYS,
    IGNORED_RUNTIME,
    IGNORED_RUNTIME_PREFIXES,
    IGNORED_TABLES,
    TABLES,
    Field,
    fields,
)

BEGIN = "<!-- fields: generated from the table of fields, do not edit -->"
END = "<!-- end of fields -->"
RETURN_BEGIN = "    # Generated from the table of fields.\n"
RETURN_END = "    # End of the generated part.\n"

_JSON_TYPES: dict[str, dict[str, Any]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "strs": {"type": "array", "items": {"type": "string"}},
    "size": {"type": ["integer", "string"]},
    "table": {"type": "object"},
    "env": {"type": "object", "additionalProperties": {"type": "string"}},
}
_ANSIBLE_TYPES = {"bool": "bool", "int": "int", "float": "float", "str": "str", "strs": "list", "size": "int"}


def _schema_of(field: Field) -> dict[str, Any]:
    if field.kind == "layouts":
        sizes = {key: _schema_of(size) for key, size in LAYOUT_FIELDS.items()}
        inner = {"type": "object", "properties": sizes, "additionalProperties": False}
        return {"type": "object", "description": field.text, "patternProperties": {"^[1-9][0-9]?$": inner},
                "additionalProperties": False}  # fmt: skip
    found = {**_JSON_TYPES[field.kind], "description": field.text}
    if field.choices:
        found["enum"] = [*field.choices, *field.later]
    if field.pattern:
        found["pattern"] = f"^({field.pattern})$"
    if field.kind in ("int", "float", "size"):
        if field.low is not None:
            found["minimum"] = int(field.low) if field.low == int(field.low) else field.low
        if field.high is not None:
            found["maximum"] = int(field.high) if field.high == int(field.high) else field.high
    if field.default is not None:
        found["default"] = field.default
    return found


def json_schema() -> dict[str, Any]:
    """The schema that editors take. Relations between fields are not in it; the card's own check has them."""
    root: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Model card",
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    tables: dict[str, dict[str, Any]] = {"": root}
    for field in fields().values():
        name = ""
        for part in [part for part in field.table.split(".") if part]:
            parent, name = tables[name], f"{name}.{part}" if name else part
            if name not in tables:
                tables[name] = {"type": "object", "properties": {}, "additionalProperties": False}
                if name in TABLES:
                    tables[name]["description"] = TABLES[name]
                parent["properties"][part] = tables[name]
        tables[field.table]["properties"][field.key] = _schema_of(field)
    for key in (*IGNORED_TABLES, *IGNORED_KEYS):
        root["properties"][key] = {"description": "Of other engines; ignored."}
    runtime = tables["runtime"]
    runtime["properties"].update({key: {"description": "Of other engines; ignored."} for key in IGNORED_RUNTIME})
    runtime["patternProperties"] = {"^(" + "|".join(IGNORED_RUNTIME_PREFIXES) + ")": {}}
    # A card that extends another may leave out what that one says.
    needed = [field for field in fields().values() if field.required]
    root["if"] = {"not": {"required": ["extends"]}}
    root["then"] = {"required": sorted({field.path.split(".")[0] for field in needed})}
    return root


def _lines(value: dict[str, Any], indent: int = 0) -> str:
    """JSON with a property a line."""
    if "properties" not in value:
        return json.dumps(value, ensure_ascii=False)
    pad = " " * indent
    parts = []
    for key, item in value.items():
        text = json.dumps(item, ensure_ascii=False)
        if key == "properties":
            inner = (f"{pad}  {json.dumps(name)}: {_lines(entry, indent + 2)}" for name, entry in item.items())
            text = "{\n" + ",\n".join(inner) + f"\n{pad} }}"
        parts.append(f"{pad} {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + f"\n{pad}}}"


def schema_text() -> str:
    return _lines(json_schema()) + "\n"


def _default(field: Field) -> str:
    if field.required:
        return "required"
    if field.default is None or field.default in ("", [], {}):
        return ""
    return f"`{json.dumps(field.default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """The generated part of docs/card-fields.md."""
    lines = [BEGIN, ""]
    for table, words in TABLES.items():
        if table == "layouts":
            continue
        lines += [f"### {'Top level' if not table else f'[{table}]'}", "", words, ""]
        lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
        for field in fields().values():
            if field.table.split(".")[0] != table:
                continue
            mark = " (public)" if field.origin == "public" else ""
            flag = f" `{field.flag}`" if field.flag else ""
            key = field.path.removeprefix(table + ".") if table else field.path
            lines.append(f"| `{key}`{mark} | {_cell(allowed(field))} | {_default(field)} | {_cell(field.text)}{flag} |")
        lines.append("")
    lines += [
        "Accepted and ignored, with a note: the tables "
        + ", ".join(f"`{name}`" for name in IGNORED_TABLES)
        + "; the keys "
        + ", ".join(f"`{name}`" for name in IGNORED_KEYS)
        + "; in [runtime] "
        + ", ".join(f"`{name}`" for name in IGNORED_RUNTIME)
        + " and keys that begin with "
        + ", ".join(f"`{name}`" for name in IGNORED_RUNTIME_PREFIXES)
        + ".",
        "",
        END,
    ]
    return "\n".join(lines) + "\n"


def _contained(name: str, text: str, kind: str) -> str:
    """One entry of RETURN's `contains`, in as few lines as it needs."""
    elements = ", elements: str" if kind == "list" else ""
    head = f"    {name}: {{type: {kind}{elements}, returned: where given, description:"
    if len(head) + len(json.dumps(text)) < 118:
        return f"{head} {json.dumps(text)}}}\n"
    wrapped = textwrap.wrap(json.dumps(text) + "}", 113, break_long_words=False, break_on_hyphens=False)
    return head + "\n" + "".join(f"      {line}\n" for line in wrapped)


def returned() -> str:
    """The generated part of the module's RETURN: the tables of the normalised card and their keys."""
    lines = [RETURN_BEGIN]
    for field in fields().values():
        if not field.table and field.path not in ("extends", "unset", "layouts"):
            lines.append(_contained(field.path, field.text, _ANSIBLE_TYPES.get(field.kind, "dict")))
    for table, words in TABLES.items():
        if table and table != "layouts":
            own = [field for field in fields().values() if field.table.split(".")[0] == table]
            keys = ", ".join(f"C({field.path.removeprefix(table + '.')})" for field in own)
            lines.append(_contained(table, f"{words} Keys {keys}.", "dict"))
    lines.append(_contained("layouts", fields()["layouts"].text, "dict"))
    lines.append(RETURN_END)
    return "".join(lines)


def replaced(text: str, begin: str, end: str, part: str) -> str:
    """A text with the part between two marks exchanged."""
    head, _begin, rest = text.partition(begin)
    _old, found, tail = rest.partition(end)
    if not found:
        raise ValueError(f"the marks {begin.strip()!r} and {end.strip()!r} are not in the text")
    return head + part.removesuffix("\n") + ("\n" if part.endswith("\n") and not tail.startswith("\n") else "") + tail


def outputs(root: Path) -> dict[Path, str]:
    """Every generated file of a checkout with the text it has to have."""
    module, docs = root / "plugins/modules/card_info.py", root / "docs/card-fields.md"
    return {
        root / "cards/card.schema.json": schema_text(),
        docs: replaced(docs.read_text(encoding="utf-8"), BEGIN, END, page()),
        module: replaced(module.read_text(encoding="utf-8"), RETURN_BEGIN, RETURN_END, returned()),
    }


def main(arguments: list[str]) -> int:
    for path, text in outputs(Path(arguments[0] if arguments else ".")).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
