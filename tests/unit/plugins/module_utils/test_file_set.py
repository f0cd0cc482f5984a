"""A set of files comes about as a whole or not at all, and what is as declared is left alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._file_set import (
    LONG_NEW_FILE,
    FileSetError,
    Wanted,
    apply,
    diff,
    parse,
    plan,
    strays,
)

OWNER = (os.getuid(), os.getgid())


def wanted(files: list[dict[str, Any]], secrets: list[dict[str, Any]] | None = None, dirs: Any = ()) -> list[Wanted]:
    return parse(files, secrets or [], dirs, OWNER)


def accept(_: list[Wanted]) -> None:
    """A verifier that has no objection."""


def test_second_run_changes_nothing(tmp_path: Path) -> None:
    files = wanted(
        [{"path": tmp_path / "d/a", "content": "x\n", "mode": "0640"}], dirs=[{"path": tmp_path / "d", "mode": "0700"}]
    )
    apply(plan(files), accept)
    assert (tmp_path / "d/a").read_text() == "x\n"
    assert stat.S_IMODE((tmp_path / "d/a").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert plan(files) == []


@pytest.mark.parametrize(("name", "reason"), [("content", "content"), ("mode", "mode 0600"), ("link", "content")])
def test_each_difference_is_seen_and_mended(tmp_path: Path, name: str, reason: str) -> None:
    path = tmp_path / "a"
    files = wanted([{"path": path, "content": "x"}])
    apply(plan(files), accept)
    if name == "content":
        path.write_text("y")
    elif name == "mode":
        path.chmod(0o600)
    else:
        path.rename(tmp_path / "b")
        path.symlink_to(tmp_path / "b")
    changes = plan(files)
    assert [change.reasons for change in changes] == [[reason]]
    apply(changes, accept)
    assert plan(files) == []
    assert not path.is_symlink()


def test_a_refused_unit_leaves_every_file_as_it_was(tmp_path: Path) -> None:
    old = tmp_path / "a"
    old.write_text("old")
    files = wanted(
        [{"path": old, "content": "new"}, {"path": tmp_path / "u.service", "content": "?", "verify": True}],
        dirs=[{"path": tmp_path / "new", "mode": "0755"}],
    )

    def refuse(units: list[Wanted]) -> None:
        assert [unit.path.name for unit in units] == ["u.service"]
        raise FileSetError("no")

    with pytest.raises(FileSetError, match="no"):
        apply(plan(files), refuse)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]
    assert old.read_text() == "old"


def test_nothing_is_renamed_where_one_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    files = wanted([{"path": tmp_path / "a", "content": "new"}, {"path": tmp_path / "none/b", "content": "x"}])
    with pytest.raises(FileSetError, match="none"):
        apply(plan(files), accept)
    assert (tmp_path / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_strays_go_and_others_stay(tmp_path: Path) -> None:
    for name in ("keep.py", "old.py", "note.txt"):
        (tmp_path / name).write_text("")
    files = wanted([{"path": tmp_path / "keep.py", "content": ""}])
    apply([*plan(files), *plan(strays([{"path": tmp_path, "pattern": "*.py"}], files))], accept)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["keep.py", "note.txt"]


def test_a_secret_is_in_no_diff_and_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old-canary")
    changes = plan(wanted([], [{"path": path, "content": "new-canary", "mode": "0600"}]))
    assert "canary" not in str(diff(changes))
    apply(changes, accept)
    assert path.read_text() == "new-canary\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([{"path": "relative", "content": ""}], "absolute"),
        ([{"path": "/a", "content": ""}, {"path": "/a", "content": "b"}], "twice"),
        ([{"path": "/a"}], "content is missing"),
    ],
)
def test_senseless_declarations(files: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(FileSetError, match=message):
        wanted(files)


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(FileSetError, match="is a folder"):
        plan(wanted([{"path": tmp_path / "a", "content": ""}]))


def test_a_long_new_file_is_counted_and_a_changed_one_is_shown(tmp_path: Path) -> None:
    text = "line\n" * (LONG_NEW_FILE + 1)
    declared = {"path": str(tmp_path / "long"), "content": text, "mode": "0644", "state": "present", "verify": False}
    (new,) = diff(plan(parse([declared], [], [], (os.getuid(), os.getgid()))))
    assert new["after"] == f"(a new file of {LONG_NEW_FILE + 1} lines)\n"
    (tmp_path / "long").write_text("other\n")
    (changed,) = diff(plan(parse([declared], [], [], (os.getuid(), os.getgid()))))
    assert changed["after"] == text
