# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as a play calls it: the names that callers rely on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.dgx_spark.vllm.plugins.modules import source_patch

from tests.unit.plugins.card_play import play
from tests.unit.plugins.module_utils.test_source_patch_apply import LAGUNA

NAME = "laguna_dflash_get_cache_scale"
FILE = "model_executor/models/laguna_dflash.py"


def call(capsys: pytest.CaptureFixture[str], **arguments: Any) -> tuple[int, dict[str, Any]]:
    with patch_module_args(arguments), pytest.raises(SystemExit) as stop:
        source_patch.main()
    return int(str(stop.value.code)), json.loads(capsys.readouterr().out)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / f"venv/lib/python3.12/site-packages/vllm/{FILE}"
    path.parent.mkdir(parents=True)
    path.write_text(LAGUNA)
    return path


def test_applied_present_absent(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = hashlib.sha256(LAGUNA.encode()).hexdigest()
    code, result = call(capsys, path=str(source), patch=NAME)
    assert (code, result["changed"], result["verdict"]) == (0, True, "applied")
    assert result["before_sha256"] == before
    assert result["after_sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert "+                and hasattr(self.quant_config" in result["diff"]["prepared"]
    _, again = call(capsys, path=str(source), patch=NAME)
    assert (again["changed"], again["verdict"], again["before_sha256"]) == (False, "present", result["after_sha256"])
    _, back = call(capsys, path=str(source), patch=NAME, state="absent")
    assert (back["changed"], back["after_sha256"]) == (True, before)
    assert source.read_text() == LAGUNA


def test_not_needed(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text("get_cache_scale_mapper = 1\n")
    code, result = call(capsys, path=str(source), patch=NAME)
    assert (code, result["changed"], result["verdict"]) == (0, False, "not_needed")


def test_unknown_content_fails_with_both_sums_and_the_anchor(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text("something = 1\n")
    code, result = call(capsys, path=str(source), patch=NAME)
    assert code == 1
    assert hashlib.sha256(source.read_bytes()).hexdigest() in result["msg"]
    assert "547e6f8add2f3a5b07c62791bacf7f3323fd2a322f9d8b9e2d04c541037d258d" in result["msg"]
    assert "scale_name := self.quant_config.get_cache_scale(name)" in result["msg"]
    assert source.read_text() == "something = 1\n"


def test_check_mode_writes_nothing(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = call(capsys, path=str(source), patch=NAME, _ansible_check_mode=True)
    assert (code, result["changed"], result["verdict"]) == (0, True, "applied")
    assert source.read_text() == LAGUNA


@pytest.mark.parametrize("arguments", [{}, {"package": "vllm", "file": FILE}])
def test_a_release_keeps_what_was_decided(
    source: Path, capsys: pytest.CaptureFixture[str], arguments: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/bin/python").symlink_to("/usr/bin/python3")
    _, result = call(capsys, release=str(tmp_path / "venv"), patch=NAME, **arguments)
    assert (result["changed"], result["path"]) == (True, str(source))
    assert sorted(path.name for path in (tmp_path / "venv/patches").iterdir()) == [f"{NAME}.json", f"{NAME}.orig"]
    _, result = call(capsys, release=str(tmp_path / "venv"), patch=NAME, **arguments)
    assert not result["changed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patch": NAME}, "one of the following is required: path, release"),
        ({"patch": "unheard-of", "path": "/x"}, "unheard-of"),
        ({"patch": NAME, "path": "/nonexistent/x.py"}, "/nonexistent/x.py"),
        ({"patch": NAME, "release": "/nonexistent"}, "is 0 times below /nonexistent"),
    ],
)
def test_what_cannot_be_done_is_named(
    arguments: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = call(capsys, **arguments)
    assert code == 1
    assert message in result["msg"]


def test_a_play_finds_patches_by_name_by_path_and_in_the_owners_folder(source: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    bundled = Path(source_patch.BUNDLED / f"{NAME}.toml").read_text()
    (own / "mine.toml").write_text(bundled.replace("get_cache_scale_mapper", "nothing"))
    module = "dgx_spark.vllm.source_patch"
    results = play(
        tmp_path,
        [
            {module: {"patch": NAME, "path": str(source)}, "check_mode": True, "diff": True},
            {module: {"patch": "mine", "path": str(source), "patch_dirs": [str(own)]}},
            {module: {"patch": str(own / "mine.toml"), "path": str(source)}},
            {module: {"patch": NAME, "path": str(source), "state": "absent"}},
            {module: {"patch": "none-such", "path": str(source)}},
        ],
    )
    assert [result.get("verdict") for result in results] == ["applied", "applied", "present", "restored", None]
    assert results[0]["diff"]["prepared"].count("\n+") >= 4
    assert "no patch 'none-such'" in results[4]["msg"]
    assert source.read_text() == LAGUNA
