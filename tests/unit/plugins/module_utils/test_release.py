# SPDX-License-Identifier: GPL-3.0-or-later
"""Which release is current, which were before, which may go, and what is left when a switch is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _release as release

ROOT = Path(__file__).resolve().parents[4]


def add(root: Path, name: str, whole: bool = True) -> str:
    path = root / "releases" / name
    path.mkdir(parents=True)
    if whole:
        (path / "manifest.json").write_text("{}")
    (root / "wheelhouse" / name).mkdir(parents=True)
    return str(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("one", "two", "three", "four"):
        add(tmp_path, name)
    return tmp_path


def go(root: Path, *names: str) -> None:
    for name in names:
        release.make_current(root, str(root / "releases" / name))


def test_current_is_switched_in_one_step_and_remembered(root: Path) -> None:
    assert release.current(root) == ""
    go(root, "one")
    assert not release.make_current(root, str(root / "releases/one"))
    go(root, "two", "three", "two")
    assert Path(release.current(root)).name == "two"
    assert [Path(path).name for path in release.history(root)] == ["two", "three", "one"]
    assert not list(root.glob(".current*"))


def test_only_whole_releases_count(root: Path) -> None:
    add(root, "half", whole=False)
    assert release.complete(root) == ["four", "one", "three", "two"]


@pytest.mark.parametrize(
    ("keep", "gone"), [(0, ["four", "one", "two"]), (1, ["four", "one"]), (2, ["four"]), (9, ["four"])]
)
def test_old_releases_go_and_the_latest_stay(root: Path, keep: int, gone: list[str]) -> None:
    go(root, "one", "two", "three")
    assert release.prunable(root, keep, root / "units") == gone
    for name in gone:
        release.remove(root, name)
    assert set(release.complete(root)) == {"one", "two", "three", "four"} - set(gone)
    assert not (root / "wheelhouse/four").exists()


def test_what_a_unit_names_stays(root: Path) -> None:
    go(root, "one", "two")
    unit = root / "units/x.service.d/10.conf"
    unit.parent.mkdir(parents=True)
    unit.write_text(f"ExecStart={root}/releases/four/bin/vllm\n")
    assert release.prunable(root, 0, root / "units") == ["one", "three"]


def test_what_a_process_runs_stays(root: Path) -> None:
    go(root, "one")
    process = subprocess.Popen([sys.executable, "-c", "input()", f"{root}/releases/two/bin/x"], stdin=subprocess.PIPE)
    try:
        assert release.prunable(root, 0, root / "units") == ["four", "three"]
    finally:
        process.communicate(b"\n")


def test_a_release_that_is_being_built_stays(root: Path) -> None:
    go(root, "one")
    add(root, "half", whole=False)
    with release.exclusive(root, "half", 1):
        assert "half" not in release.prunable(root, 0, root / "units")
    assert "half" in release.prunable(root, 0, root / "units")


def test_a_link_that_is_no_link_or_dangles_is_no_release(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    assert release.current(tmp_path) == ""
    (tmp_path / "current").rmdir()
    (tmp_path / "current").symlink_to(tmp_path / "gone")
    assert release.current(tmp_path) == str(tmp_path / "gone")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"history": []}'])
def test_a_spoilt_note_is_no_history(tmp_path: Path, text: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/engine.json").write_text(text)
    assert release.history(tmp_path) == []


def test_a_lock_is_freed_by_whoever_dies(root: Path) -> None:
    program = (
        "import sys, os\nfrom pathlib import Path\n"
        "from ansible_collections.dgx_spark.vllm.plugins.module_utils import _release as r\n"
        "with r.exclusive(Path(sys.argv[1]), 'one', 5):\n    print('held', flush=True)\n    input()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "collections")}
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(root)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    assert process.stdout.readline() == b"held\n"
    with pytest.raises(release.BusyError, match="release one is being worked on"), release.exclusive(root, "one", 1):
        pass
    process.kill()
    process.communicate()
    with release.exclusive(root, "one", 1):
        pass


def test_killed_at_any_step_a_switch_leaves_one_of_the_two(root: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _release as r
left = int(sys.argv[3])
def step(real):
    def call(*a, **k):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return real(*a, **k)
    return call
for name in ("replace", "unlink", "symlink_to", "mkdir"):
    setattr(Path, name, step(getattr(Path, name)))
os.fsync = step(os.fsync)
r.make_current(Path(sys.argv[1]), sys.argv[2])
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "collections")}
    go(root, "one")
    killed = 0
    for moment in range(10):
        for name in ("two", "one"):
            argv = [sys.executable, "-c", program, str(root), str(root / "releases" / name), str(moment)]
            killed += subprocess.run(argv, env=environment, check=False).returncode == -9
            assert Path(release.current(root)).name in ("one", "two")
            go(root, name)
            assert Path(release.current(root)).name == name
            assert json.loads((root / "state/engine.json").read_text())["history"][0].endswith(name)
    assert killed >= 6
