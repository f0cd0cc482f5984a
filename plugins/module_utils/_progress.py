# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""How far a long piece of work is: counted where it runs, read and shown elsewhere.

A `Meter` is fed by the work and keeps a small JSON file up to date; `line` makes of such a file what a person reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

_WINDOW_S: Final = 10.0
_WRITE_EVERY_S: Final = 0.5
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def human(count: float) -> str:
    """Bytes for a person, in powers of ten as disks and links are sold: three digits."""
    value, unit = float(max(count, 0)), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Seconds for a person: 0:07, 12:34, 1:02:03."""
    whole = max(int(seconds + 0.5), 0)
    hours, rest = divmod(whole, 3600)
    minutes, last = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{last:02d}" if hours else f"{minutes}:{last:02d}"


def line(status: Mapping[str, Any]) -> str:
    """One line: what is done, how far it is, how fast, how long it will still take."""
    done, total, rate = (float(status.get(key) or 0) for key in ("done", "total", "rate"))
    parts = [str(status.get("title") or "working"), str(status.get("phase") or "")]
    if total:
        share = min(int(100 * done / total), 100 if done >= total else 99)
        parts.append(f"{human(done)} of {human(total)} ({share} %)")
    elif done:
        parts.append(human(done))
    if rate >= 1:
        parts.append(f"{human(rate)}/s")
        if total > done:
            parts.append(f"{duration((total - done) / rate)} left")
    elif total > done:
        parts.append(str(status.get("waiting") or "nothing moves"))
    return "  ".join(part for part in parts if part)


def write_status(path: Path, status: Mapping[str, Any]) -> None:
    """Replace the file at once: a reader sees the one before or this one. A full disk stops no work."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w") as stream:
                json.dump(status, stream)
            Path(aside).replace(path)
        except OSError:
            Path(aside).unlink(missing_ok=True)
            raise


class Meter:
    """Counts the bytes of one piece of work, from any number of threads."""

    def __init__(self, path: Path | None = None, title: str = "", clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._marks: deque[tuple[float, int]] = deque()
        self._written = 0.0
        self._status: dict[str, Any] = {"title": title, "phase": "", "done": 0, "total": 0, "rate": 0.0}
        self._status |= {"started": clock(), "state": "running", "waiting": ""}

    def title(self, text: str) -> None:
        """What the work is now about."""
        with self._lock:
            self._status["title"] = text

    def phase(self, name: str, total: int, done: int = 0) -> None:
        """Begin a part of the work whose size is known; what is there already counts as done, not as speed."""
        with self._lock:
            self._marks.clear()
            self._marks.append((self._clock(), done))
            self._status |= {"phase": name, "total": total, "done": done, "rate": 0.0}
        self.publish(force=True)

    def add(self, count: int) -> None:
        """Some more bytes are done (fewer, where work is done again)."""
        with self._lock:
            self._status["done"] = max(self._status["done"] + count, 0)
        self.publish()

    def at(self, done: int) -> None:
        """So many bytes of this part are done, by a count made elsewhere."""
        with self._lock:
            self._status["done"] = done
        self.publish()

    def more(self, count: int) -> None:
        """The part of the work that is under way is larger than was thought."""
        with self._lock:
            self._status["total"] += count

    def waiting(self, why: str) -> None:
        """Say what is waited for while nothing moves."""
        with self._lock:
            self._status["waiting"] = why
        self.publish()

    def finish(self, state: str, **more: Any) -> None:
        """The last word: done, failed or stopped, with a result or an error."""
        with self._lock:
            self._status |= {"state": state, **more}
        self.publish(force=True)

    def snapshot(self) -> dict[str, Any]:
        """What the file holds."""
        with self._lock:
            now, done = self._clock(), int(self._status["done"])
            self._marks.append((now, done))
            while len(self._marks) > 2 and now - self._marks[1][0] >= _WINDOW_S:
                self._marks.popleft()
            first, base = self._marks[0]
            rate = max(done - base, 0) / (now - first) if now > first else 0.0
            self._status |= {"rate": rate, "updated": now}
            return dict(self._status)

    def publish(self, force: bool = False) -> None:
        """Write the file, not more than twice a second unless forced."""
        if self._path is None:
            return
        with self._lock:
            now = self._clock()
            if not force and now - self._written < _WRITE_EVERY_S:
                return
            self._written = now
        write_status(self._path, self.snapshot())
