# SPDX-License-Identifier: GPL-3.0-or-later
"""Long work in the background: counted, found again, ended, and never twice at once. Real processes, no fakes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _progress_job
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import Meter, duration, human, line
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job, JobError, end, poll, start


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (12_345, "12.3 kB"),
        (999_600, "1.00 MB"),
        (121_000_000_000, "121 GB"),
        (-5, "0 B"),
    ],
)
def test_bytes_for_a_person(count: float, said: str) -> None:
    assert human(count) == said


@pytest.mark.parametrize(("seconds", "said"), [(0, "0:00"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")])
def test_seconds_for_a_person(seconds: float, said: str) -> None:
    assert duration(seconds) == said


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_meter_counts_rate_over_the_last_seconds_only() -> None:
    clock = Clock()
    meter = Meter(title="moving", clock=clock)
    meter.phase("shards", 1000, done=400)
    assert meter.snapshot()["rate"] == 0
    for _ in range(40):
        clock.now += 1
        meter.add(10)
        found = meter.snapshot()
    assert found["done"] == 800
    assert found["rate"] == pytest.approx(10)
    assert line(found) == "moving  shards  800 B of 1.00 kB (80 %)  10 B/s  0:20 left"
    clock.now += 30
    meter.waiting("spark-01: no route to host")
    for _ in range(3):
        clock.now += 10
        found = meter.snapshot()
    assert line(found).endswith("spark-01: no route to host")


def test_a_share_is_full_only_when_all_is_done() -> None:
    assert "(99 %)" in line({"done": 999_999, "total": 1_000_000, "rate": 1})
    assert "(100 %)" in line({"done": 1_000_000, "total": 1_000_000})
    assert line({}) == "working"


def test_many_threads_lose_no_byte(tmp_path: Path) -> None:
    meter = Meter(tmp_path / "status.json")
    meter.phase("x", 8000)

    def count() -> None:
        for _ in range(1000):
            meter.add(1)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    meter.finish("done")
    assert _progress_job.read_status(tmp_path / "status.json")["done"] == 8000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "jobs"
    end(tmp_path / "jobs", "job")


def until(found: Callable[[], Any], limit: float = 20.0) -> Any:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.02)
    raise AssertionError("did not come about in time")


def ended(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = until(lambda: (s := poll(folder, "job")).get("state") != "running" and s)
    return found


def sleeper(job: Job) -> dict[str, Any]:
    job.stop.wait(60)
    return {}


def test_a_job_ends_with_its_result(folder: Path) -> None:
    def work(job: Job) -> dict[str, Any]:
        job.meter.phase("counting", 3)
        job.meter.add(3)
        print("said")
        return {"answer": 42, "pid": os.getpid(), "parent": os.getppid()}

    begun = start(folder, "job", "test", work)
    found = ended(folder)
    assert not begun["attached"]
    assert found["state"] == "done"
    assert found["result"]["answer"] == 42
    assert found["result"]["pid"] != os.getpid() != found["result"]["parent"]
    assert Path(begun["log"]).read_text() == "said\n"


def test_errors_are_told(folder: Path) -> None:
    def hopeless(_job: Job) -> dict[str, Any]:
        raise JobError("the disk is full")

    start(folder, "job", "test", hopeless)
    assert (ended(folder)["state"], ended(folder)["error"]) == ("failed", "the disk is full")

    def broken(_job: Job) -> dict[str, Any]:
        raise ZeroDivisionError("oops")

    log = start(folder, "job", "test", broken)["log"]
    assert ended(folder)["error"] == f"ZeroDivisionError: oops; the whole story is in {log}"
    assert "Traceback" in Path(log).read_text()


def test_the_same_work_is_found_running_and_other_work_replaces_it(folder: Path) -> None:
    start(folder, "job", "test", sleeper, spec=1)
    first = until(lambda: poll(folder, "job").get("pid"))
    assert start(folder, "job", "test", sleeper, spec=1)["attached"]
    assert poll(folder, "job")["pid"] == first
    assert not start(folder, "job", "test", sleeper, spec=2)["attached"]
    assert until(lambda: (p := poll(folder, "job").get("pid")) != first and p)
    until(lambda: not Path(f"/proc/{first}").exists())


def test_a_killed_job_is_lost_and_its_programs_are_ended(folder: Path) -> None:
    def work(job: Job) -> dict[str, Any]:
        program = subprocess.Popen(["sleep", "600"], pass_fds=job.inherited)
        return {"code": program.wait()}

    start(folder, "job", "test", work)
    pid = until(lambda: poll(folder, "job").get("pid"))
    child = until(lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text().split())[0]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists())
    # The orphan holds the lock: the job is neither free to start beside it, nor lost yet.
    assert poll(folder, "job")["state"] == "running"
    start(folder, "job", "test", sleeper, spec=2)
    until(lambda: not Path(f"/proc/{child}").exists())
    end(folder, "job")
    assert poll(folder, "job")["state"] == "stopped"


def test_a_job_that_dies_alone_is_lost(folder: Path) -> None:
    start(folder, "job", "test", sleeper)
    pid = until(lambda: poll(folder, "job").get("pid"))
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: poll(folder, "job")["state"] == "lost")
    end(folder, "job")


def test_a_job_that_nobody_watches_stops(folder: Path) -> None:
    start(folder, "job", "test", sleeper, lease_s=0.4)
    status = folder / "job.json"
    assert until(lambda: _progress_job.read_status(status).get("state") == "stopped")
    assert "nobody has watched" in (folder / "job.log").read_text()


def test_a_watched_job_goes_on(folder: Path) -> None:
    start(folder, "job", "test", sleeper, lease_s=0.5)
    for _ in range(15):
        time.sleep(0.1)
        assert poll(folder, "job")["state"] == "running"


def test_a_lock_of_somebody_else_is_told_after_a_while(folder: Path) -> None:
    folder.mkdir()
    program = subprocess.Popen(["flock", "--no-fork", folder / "job.lock", "sleep", "600"])
    try:
        until(lambda: subprocess.run(["flock", "-n", folder / "job.lock", "true"], check=False).returncode)
        with pytest.raises(JobError, match="not by a job of ours"):
            end(folder, "job", limit_s=0.3)
        assert program.poll() is None
    finally:
        program.kill()
        program.wait()
