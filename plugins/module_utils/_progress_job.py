# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Long work in the background of a node, outliving the module that began it, and never twice at once.

    <folder>/<id>.lock     held by the job, and by every program that it starts, until all of them are gone
    <folder>/<id>.json     how far it is (see _progress), in the end its result or error
    <folder>/<id>.lease    touched by whoever watches; a job that nobody has watched for a while stops by itself
    <folder>/<id>.log      what it printed

A play that was killed leaves the job running for the length of the lease: the next run finds it and watches on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from ._progress import Meter, write_status

LEASE_S: Final = 120.0
_ORPHANS_S: Final = 20.0


class JobError(Exception):
    """The work cannot be done; the message is for a person."""


class Job:
    """What the work sees: its meter, whether it shall stop, and the lock that its programs inherit."""

    def __init__(self, meter: Meter, lock: int = -1) -> None:
        self.meter = meter
        self.lock = lock
        self.stop = threading.Event()
        self.watched = time.monotonic()

    def keep(self) -> None:
        """Somebody depends on the work now, although nobody watches it."""
        self.watched = time.monotonic()

    @property
    def inherited(self) -> tuple[int, ...]:
        """File descriptors for `pass_fds` of every program that the work starts."""
        return (self.lock,) if self.lock >= 0 else ()


Work = Callable[[Job], dict[str, Any]]


class Files:
    """The files of one job."""

    def __init__(self, folder: Path, job_id: str) -> None:
        self.status = folder / f"{job_id}.json"
        self.lock = folder / f"{job_id}.lock"
        self.lease = folder / f"{job_id}.lease"
        self.log = folder / f"{job_id}.log"

    def names(self) -> dict[str, str]:
        """For a result."""
        return {name: str(getattr(self, name)) for name in ("status", "lock", "lease", "log")}


def _try_lock(path: Path) -> int:
    """The lock's descriptor, or -1 where a job holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    return descriptor


def read_status(path: Path) -> dict[str, Any]:
    """The status file, or an empty dict."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, dict):
            return found
    return {}


def _session_of(pid: int) -> int:
    """Number of the session that a process belongs to; 0 for no such process."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    return 0


def _lives(status: dict[str, Any]) -> bool:
    """Whether the job's own process is there: the number alone could be another's by now."""
    pid, session = int(status.get("pid") or 0), int(status.get("session") or 0)
    return pid > 1 and session > 1 and _session_of(pid) == session


def _end(status: dict[str, Any], by: signal.Signals) -> None:
    """End what the job and its programs are; a session's number is free for nobody while a member of it lives."""
    session = int(status.get("session") or 0)
    if session <= 1 or status.get("boot") != boot_id():
        return
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if _session_of(pid) == session and (by == signal.SIGKILL or pid == status.get("pid")):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, by)


def boot_id() -> str:
    """Which start of the machine this is: numbers of processes mean nothing in another one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def run_here(title: str, work: Work) -> dict[str, Any]:
    """Do the work in this process, without files."""
    return work(Job(Meter(title=title)))


def start(
    folder: Path, job_id: str, title: str, work: Work, spec: object = None, lease_s: float = LEASE_S
) -> dict[str, Any]:
    """Begin the work in the background, or find it running. Returns the names of its files and `attached`.

    A job that runs for another spec is ended first: two of one name never work at once.
    """
    files = Files(folder, job_id)
    wanted = hashlib.sha256(json.dumps(spec, sort_keys=True, default=str).encode()).hexdigest()
    while (lock := _try_lock(files.lock)) < 0:
        status = read_status(files.status)
        if _lives(status) and status.get("spec") == wanted and status.get("state") == "running":
            files.lease.touch()
            return {**files.names(), "attached": True}
        end(folder, job_id)
    files.lease.touch()
    write_status(files.status, {"title": title, "state": "running", "done": 0, "total": 0})
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _detach(files, lock, title, work, wanted, lease_s)
    os.close(lock)
    os.waitpid(child, 0)
    return {**files.names(), "attached": False}


def _detach(files: Files, lock: int, title: str, work: Work, spec: str, lease_s: float) -> NoReturn:
    """Become a session of one's own, let the parent go, and work; never returns."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(files.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdin, sys.stdout = os.fdopen(0, "r", closefd=False), os.fdopen(1, "w", 1, closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, closefd=False)
        _work(files, lock, title, work, spec, lease_s)
    finally:
        os._exit(1)


def _work(files: Files, lock: int, title: str, work: Work, spec: str, lease_s: float) -> None:
    meter = Meter(files.status, title)
    meter.finish("running", pid=os.getpid(), session=os.getsid(0), boot=boot_id(), spec=spec)
    job = Job(meter, lock)
    signal.signal(signal.SIGTERM, lambda *_: job.stop.set())
    threading.Thread(target=_watch_lease, args=(files, job, lease_s), daemon=True).start()
    try:
        result = work(job)
        meter.finish("stopped" if job.stop.is_set() else "done", result=result)
    except JobError as error:
        meter.finish("stopped" if job.stop.is_set() else "failed", error=str(error))
    except BaseException as error:  # whatever it was, the one who waits must hear of it
        traceback.print_exc()
        meter.finish("failed", error=f"{type(error).__name__}: {error}; the whole story is in {files.log}")
    sys.stdout.flush()
    os._exit(0)


def _watch_lease(files: Files, job: Job, lease_s: float) -> None:
    """Stop when nobody has looked for the length of the lease, by a clock that nobody can set."""
    touched = 0
    while not job.stop.wait(min(lease_s / 4, 2.0)):
        job.meter.publish()
        with contextlib.suppress(OSError):
            now = files.lease.stat().st_mtime_ns
            if now != touched:
                touched = now
                job.keep()
        if time.monotonic() - job.watched > lease_s:
            print(f"nobody has watched for {lease_s:.0f} s: stopping", flush=True)
            job.stop.set()


def poll(folder: Path, job_id: str) -> dict[str, Any]:
    """Look at a job and renew its lease. A job that died without a last word has the state `lost`."""
    files = Files(folder, job_id)
    with contextlib.suppress(OSError):
        files.lease.touch()
    lock = _try_lock(files.lock)
    status = read_status(files.status)
    if lock >= 0:
        os.close(lock)
        if status.get("state") == "running":
            return {**status, "state": "lost", "error": "the job ended without a word (killed, or the node restarted)"}
    return status


def end(folder: Path, job_id: str, limit_s: float = _ORPHANS_S) -> None:
    """End a job, and come back when it and its programs are gone; nothing to do where none runs."""
    files = Files(folder, job_id)
    if not files.lock.exists():
        return
    begun = time.monotonic()
    while (lock := _try_lock(files.lock)) < 0:
        status, waited = read_status(files.status), time.monotonic() - begun
        _end(status, signal.SIGTERM if _lives(status) and waited < limit_s / 2 else signal.SIGKILL)
        if waited > limit_s:
            raise JobError(f"{files.lock} is held, but not by a job of ours: see `fuser {files.lock}`")
        time.sleep(0.05)
    os.close(lock)
