# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows how far work is on several hosts: live lines on a terminal, a line every ten seconds in a log.

Ansible runs an action for each host in a process of its own, without the terminal. The processes of one run leave
their lines in a folder; the one that holds a lock there draws all of them on the terminal of the run's first process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from ansible.utils.display import Display

LOG_EVERY_S = 10.0
FIRST_AFTER_S = 3.0
_STALE_S = 5.0
# Save and restore the cursor, clear what is below it, clear the rest of a line.
_SAVE, _RESTORE, _BELOW, _REST = "\0337", "\0338", "\033[J", "\033[K"


def terminal(main_pid: int) -> str:
    """Path of the terminal that the run's first process prints to; empty for none, or where it is not wanted."""
    if os.environ.get("DGX_SPARK_PROGRESS", "live") != "live" or os.environ.get("TERM", "dumb") == "dumb":
        return ""
    try:
        target = str(Path(f"/proc/{main_pid}/fd/1").readlink())
    except OSError:
        return ""
    return target if target.startswith("/dev/") and _is_terminal(target) else ""


def _is_terminal(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.isatty(descriptor)
    finally:
        os.close(descriptor)


def frame(lines: list[str], width: int) -> str:
    """What draws the lines below the cursor and leaves the cursor where it was, also on the last row of a screen.

    The first row stays empty: the runner's own next line goes there, and nothing of ours is left beside it.
    """
    room = len(lines) + 1
    cut = [text if len(text) < width else text[: max(width - 2, 0)] + "…" for text in lines]
    rows = "".join(f"\n\r{text}{_REST}" for text in ["", *cut])
    return f"{'\n' * room}\033[{room}A\r{_SAVE}{_BELOW}{rows}{_RESTORE}"


class Screen:
    """The lines of one host."""

    def __init__(self, host: str) -> None:
        self.host = host
        # Work of a few seconds needs no line.
        self._logged = time.monotonic() - LOG_EVERY_S + FIRST_AFTER_S
        self._text = ""
        self._drawer = -1
        self._tty = terminal(os.getppid())
        self._folder = Path(tempfile.gettempdir()) / f"dgx-spark-vllm-{os.getuid()}-{os.getppid()}"
        if self._tty:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._folder.stat().st_uid != os.getuid() or self._folder.is_symlink():
                self._tty = ""

    def show(self, text: str) -> None:
        """The host's newest line."""
        if not self._tty:
            now = time.monotonic()
            if text != self._text and now - self._logged >= LOG_EVERY_S:
                self._logged, self._text = now, text
                Display().display(f"  {self.host}: {text}")
            return
        self._mine().write_text(f"{self.host}: {text}", encoding="utf-8")
        if self._draws():
            self._draw()

    def close(self) -> None:
        """The host's work has ended: its line goes, and the others' stay."""
        if not self._tty:
            return
        self._mine().unlink(missing_ok=True)
        if self._drawer >= 0:
            with contextlib.suppress(OSError), Path(self._tty).open("w", encoding="utf-8") as stream:
                stream.write(_BELOW)
            os.close(self._drawer)
            self._drawer = -1
        with contextlib.suppress(OSError):
            (self._folder / ".drawer").unlink() if not any(self._folder.glob("*.line")) else None
            self._folder.rmdir()

    def _mine(self) -> Path:
        return self._folder / f"{self.host.replace('/', '_')}.line"

    def _draws(self) -> bool:
        """Whether this process draws: the first, and when it ends another."""
        if self._drawer < 0:
            descriptor = os.open(self._folder / ".drawer", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._drawer = descriptor
            except BlockingIOError:
                os.close(descriptor)
        return self._drawer >= 0

    def _draw(self) -> None:
        now = time.time()
        lines = []
        for path in sorted(self._folder.glob("*.line")):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime < _STALE_S:
                    lines.append(path.read_text(encoding="utf-8"))
        with contextlib.suppress(OSError), Path(self._tty).open("w", encoding="utf-8") as stream:
            try:
                width = os.get_terminal_size(stream.fileno()).columns
            except OSError:
                width = shutil.get_terminal_size().columns
            # A terminal that does not know its width says 0.
            stream.write(frame(lines, width or 80))
            stream.flush()
