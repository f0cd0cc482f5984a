"""One run at a time, and none that is gone holds the others up."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _play_lock as lock

OWN = {"who": "a", "controller": "c1", "boot": "b1", "process": "10:1", "what": "site", "gone": []}


def other(**changes: Any) -> dict[str, Any]:
    return {**OWN, "process": "11:1", **changes}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/play.lock"


def test_the_second_is_refused_and_told_who_it_is(path: Path) -> None:
    assert lock.take(path, OWN, False, 1000) == (True, "")
    with pytest.raises(PermissionError, match=r"a@c1 \(process 10, site\) since "):
        lock.take(path, other(), False, 1010)


def test_the_same_run_keeps_it(path: Path) -> None:
    lock.take(path, OWN, False, 1000)
    assert lock.take(path, OWN, False, 1010) == (False, "")


def test_only_the_holder_releases(path: Path) -> None:
    lock.take(path, OWN, False, 1000)
    assert not lock.release(path, other())
    assert lock.release(path, OWN)
    assert lock.take(path, other(), False, 1010) == (True, "")


@pytest.mark.parametrize(
    ("changes", "now", "why"),
    [
        ({"gone": ["10:1"]}, 1010, "its process on this controller is gone"),
        ({"boot": "b2"}, 1010, "its process on this controller is gone"),
        ({"controller": "c2"}, 1000 + 7 * 3600, "older than 6 hours"),
    ],
)
def test_a_holder_that_is_gone_no_longer_counts(path: Path, changes: dict[str, Any], now: float, why: str) -> None:
    lock.take(path, OWN, False, 1000)
    taken, note = lock.take(path, other(**changes), False, now)
    assert taken
    assert why in note


def test_another_controllers_process_numbers_say_nothing(path: Path) -> None:
    lock.take(path, OWN, False, 1000)
    with pytest.raises(PermissionError):
        lock.take(path, other(controller="c2", boot="b9", gone=["10:1"]), False, 1010)


def test_a_lost_connection_and_a_torn_file(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{")
    assert lock.take(path, OWN, False, 1000)[0]
    process = subprocess.Popen(["/bin/true"])
    session = lock.identity(process.pid) or f"{process.pid}:0"
    process.wait()
    assert (
        lock.stale({**OWN, "session": session, "since": 1000}, other(controller="c2"), 1010) == "its connection is gone"
    )


def test_force(path: Path) -> None:
    lock.take(path, OWN, False, 1000)
    assert lock.take(path, other(), True, 1010)[0]


def test_identity_tells_processes_apart() -> None:
    assert lock.identity(os.getpid()).startswith(f"{os.getpid()}:")
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert lock.identity(process.pid) == ""
