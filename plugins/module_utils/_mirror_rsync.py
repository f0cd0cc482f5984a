# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""rsync, the mover: how it is called, watched and ended, and what its exits mean."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ._progress_job import Job, JobError

# No sign of life for so long, and a connection counts as cut.
IO_TIMEOUT_S: Final = 20
CONNECT_TIMEOUT_S: Final = 5
# A rail that did not answer is left out for so long, where there is another.
SILENCE_S: Final = 30.0
# A name that is not there (23) or went away (24): not a fault of the connection.
NOT_THERE: Final = (23, 24)
# Syntax, missing program features, no space and the like: another try gives the same.
HOPELESS: Final = (1, 2, 4, 6, 11, 13, 22)


@dataclass(frozen=True)
class Outcome:
    """How one call ended."""

    code: int
    text: str

    @property
    def reason(self) -> str:
        """What says most: a daemon's own line; else the last one, which names the kind, after the first, the thing."""
        lines = [line for line in self.text.splitlines() if line] or [f"rsync ended with {self.code}"]
        own = [line for line in lines if line.startswith("@ERROR")]
        if any("Invalid cross-device link" in line for line in lines):
            lines.append("a link that the daemon does not follow: put the file itself there (cp --dereference)")
        return "; ".join(own[:1] or dict.fromkeys((lines[0][:300], lines[-1][:200])))

    @property
    def hopeless(self) -> bool:
        """Whether another try would give the same."""
        return self.code in HOPELESS or (self.code == 5 and "max connections" not in self.reason)


class Rails:
    """The addresses of a node by turns, but for those that were silent a moment ago."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = 0
        self._silent: dict[str, float] = {}

    def turn(self) -> int:
        """Where to begin: streams that work side by side begin on different rails."""
        with self._lock:
            self._turn += 1
            return self._turn

    def pick(self, addresses: Sequence[str], turn: int) -> str:
        """The address whose turn it is, or the next one that is not silent."""
        order = [addresses[(turn + number) % len(addresses)] for number in range(len(addresses))]
        since = time.monotonic() - SILENCE_S
        return next((address for address in order if self._silent.get(address, since) <= since), order[0])

    def silent(self, address: str) -> None:
        """A call to this address failed as a connection."""
        self._silent[address] = time.monotonic()


def rsync_path() -> str:
    """Path of rsync, or an empty text."""
    return shutil.which("rsync", path="/usr/local/bin:/usr/bin:/bin") or ""


def program() -> str:
    """Path of rsync; raises JobError where there is none."""
    if found := rsync_path():
        return found
    raise JobError("rsync is not installed; install the package rsync")


def call(job: Job, arguments: Sequence[str], names: Sequence[str], source: str, into: Path) -> Outcome:
    """Bring the named files from a source folder into a folder. Ends early when the job shall stop.

    Names go by a list, never as arguments: what looks like a pattern or an option in them is neither.
    """
    with tempfile.TemporaryFile() as listed, tempfile.TemporaryFile() as said:
        listed.write(b"\0".join(name.encode("utf-8", "surrogateescape") for name in names))
        listed.seek(0)
        process = subprocess.Popen(
            [program(), "--files-from=-", "--from0", "--times", *arguments, source, f"{into}/"],
            stdin=listed,
            stdout=subprocess.DEVNULL,
            stderr=said,
            pass_fds=job.inherited,
            # Fixed, so that its messages are the ones that are looked for.
            env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        )
        try:
            code = _wait(job, process)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        said.seek(0)
        text = said.read()[-4000:].decode("utf-8", "replace").strip()
    return Outcome(code, text)


def _wait(job: Job, process: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return process.wait(0.2)
        except subprocess.TimeoutExpired:
            if job.stop.is_set():
                process.terminate()
                return process.wait(5)


def _limit(bandwidth: int) -> list[str]:
    return [f"--bwlimit={max(bandwidth // 1024, 1)}"] if bandwidth else []


def daemon_options(password_file: Path, bandwidth: int = 0) -> list[str]:
    """Options of a call that asks a daemon; bandwidth in bytes per second, 0 for no limit."""
    return [
        "--copy-links",
        f"--password-file={password_file}",
        f"--timeout={IO_TIMEOUT_S}",
        f"--contimeout={CONNECT_TIMEOUT_S}",
        "--no-motd",
        *_limit(bandwidth),
    ]


def remote_shell_options(command: str, bandwidth: int = 0) -> list[str]:
    """Options of a call over a remote shell; the command is split by rsync, with its quotes kept together."""
    return [f"--rsh={command}", f"--timeout={IO_TIMEOUT_S}", *_limit(bandwidth)]
