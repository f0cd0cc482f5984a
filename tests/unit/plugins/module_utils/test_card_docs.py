# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What is generated from the table of fields is up to date, and says the same as the check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _card_docs
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_check import check
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_schema import TABLES, fields, serve_flags, tables
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_toml import parse
from ansible_collections.dgx_spark.vllm.plugins.modules import card_info as module
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.module_utils.card_makers import BUNDLED, CARDS, card

ROOT = CARDS.parent
SCHEMA = json.loads((CARDS / "card.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@pytest.mark.parametrize("path", _card_docs.outputs(ROOT))
def test_generated_files_are_what_the_table_makes(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == _card_docs.outputs(ROOT)[path]


def test_writing_is_idempotent_and_repairs(tmp_path: Path) -> None:
    for name in ("docs/card-fields.md", "plugins/modules/card_info.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "cards").mkdir()
    page = tmp_path / "docs/card-fields.md"
    page.write_text(page.read_text(encoding="utf-8").replace("| `n_layers`", "| `n_layer`"), encoding="utf-8")
    assert _card_docs.main([str(tmp_path)]) == 0
    assert page.read_text(encoding="utf-8") == (ROOT / "docs/card-fields.md").read_text(encoding="utf-8")
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="are not in the text"):
        _card_docs.outputs(tmp_path)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", BUNDLED)
def test_editors_take_every_bundled_card(name: str) -> None:
    data, _lines = parse((CARDS / f"{name}.toml").read_bytes())
    assert [error.message for error in VALIDATOR.iter_errors(data)] == []


def test_editors_take_a_card_of_the_public_format() -> None:
    data, _lines = parse((Path(__file__).parent / "public_card.toml").read_bytes())
    assert [error.message for error in VALIDATOR.iter_errors(data)] == []


def test_every_table_and_field_is_documented_once() -> None:
    page = (ROOT / "docs/card-fields.md").read_text(encoding="utf-8")
    for table, keys in tables().items():
        assert table == "" or f"[{table.split('.')[0]}]" in page
        assert table.split(".")[0] in TABLES
        for field in keys.values():
            assert field.text.endswith((".", "on."))
            assert f"{field.text.replace('|', chr(92) + '|')}" in page
    texts = [field.text for field in fields().values()]
    sizes = [text for text in texts if texts.count(text) > 1]
    assert sizes == []


def test_no_flag_belongs_to_two_fields() -> None:
    flags = [flag for field in fields().values() for flag in (field.flag, field.negative) if flag]
    assert len(flags) == len(set(flags)) == len(serve_flags())
    for field in fields().values():
        if field.table == "serve":
            assert field.flag == "--" + field.key.replace("_", "-")


def test_the_modules_documentation_has_every_option_and_table() -> None:
    from ansible_collections.dgx_spark.vllm.plugins.action.card_info import ARGUMENTS

    options = yaml.safe_load(module.DOCUMENTATION)["options"]
    assert set(options) == set(ARGUMENTS)
    for name, option in options.items():
        assert option["type"] == ARGUMENTS[name]["type"]
        assert option.get("required", False) == ARGUMENTS[name].get("required", False)
        assert option.get("default") == ARGUMENTS[name].get("default")
    returned = yaml.safe_load(module.RETURN)
    top = {field.path.split(".")[0] for field in fields().values()} - {"extends", "unset"}
    assert set(returned["card"]["contains"]) == top


leaves: Any = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2**60), st.floats(-1, 2), st.text(max_size=5),
    st.just("FLASHINFER"), st.just("98G"),
    st.lists(st.text(max_size=3), max_size=2), st.dictionaries(st.sampled_from(["A", "b c"]), st.text(max_size=3)),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(sorted(fields())), leaves, max_size=4))
def test_the_schema_refuses_nothing_that_the_check_takes(changes: dict[str, Any]) -> None:
    if any(path.split(".")[0] == other.split(".")[0] and path != other and "." not in min(path, other, key=len)
           for path in changes for other in changes):  # fmt: skip
        changes = dict(list(changes.items())[:1])
    data = card({path: value for path, value in changes.items() if value is not None})
    if not check(data).problems:
        assert [error.message for error in VALIDATOR.iter_errors(data)] == []
