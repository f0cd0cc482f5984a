"""Secrets are made once, kept, replaced by declared ones, and never readable by others."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._secret_files import (
    SecretError,
    decide,
    make,
    render,
    write,
)


def put(path: Path, text: str) -> None:
    write(path, text, os.getuid(), os.getgid())


def test_made_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "c/token"
    first = decide(path, [])
    assert first.reason == "absent"
    put(path, render(first.values))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = decide(path, [])
    assert again == type(again)(first.values, "")


def test_declared_values_win(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    put(path, "old\n")
    assert decide(path, ["new", "old"]).values == ["new", "old"]
    assert decide(path, ["old"]).reason == ""


def test_a_file_that_others_can_read_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    put(path, "k\n")
    path.chmod(0o644)
    assert decide(path, []).reason == "mode 0644"


@pytest.mark.parametrize("bad", ["", "with space", 'quo"te', "line\nbreak", "ünicode"])
def test_values_that_cannot_stand_in_a_header_are_refused_unseen(tmp_path: Path, bad: str) -> None:
    with pytest.raises(SecretError) as caught:
        decide(tmp_path / "keys", [bad])
    assert not bad or bad not in str(caught.value)


def test_a_link_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").symlink_to("/etc/passwd")
    with pytest.raises(SecretError, match="not a regular file"):
        decide(tmp_path / "keys", [])


def test_as_a_line_of_an_environment_file() -> None:
    assert render(["a", "b"], "VLLM_API_KEY") == "VLLM_API_KEY=a\n"
    assert make() != make()
