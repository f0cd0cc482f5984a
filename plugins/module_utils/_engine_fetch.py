# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""A folder of wheels that a lock names: each fetched once, resumed after a cut, and kept only with the right hash."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ._engine_lock import Wheel
from ._host_facts import disk_free
from ._progress import Meter

CHUNK = 1 << 20
ATTEMPTS = 6
TIMEOUT_S = 60
MARK = "verified.json"


class FetchError(RuntimeError):
    """Wheels that could not be had; the message names every one with its reason."""


class Result(NamedTuple):
    """What a fetch did: bytes that came over the network, bytes taken from other folders, bytes already there."""

    fetched: int
    seeded: int
    kept: int


def sha256_file(path: Path) -> str:
    """The sha256 of a file's content."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


class Marks:
    """Which files of a folder were hashed before, by size and time, so that a second run need not read them."""

    def __init__(self, folder: Path) -> None:
        """Read the marks of a folder; an unreadable file of marks only means hashing again."""
        self._path = folder / MARK
        self._marks: dict[str, list[object]] = {}
        with contextlib.suppress(OSError, ValueError):
            self._marks = dict(json.loads(self._path.read_text()))

    def holds(self, path: Path, wheel: Wheel) -> bool:
        """Whether the file is the wheel: by its mark where that still fits the file, else by its hash."""
        try:
            stat = path.stat()
        except OSError:
            return False
        if wheel.size and stat.st_size != wheel.size:
            return False
        mark = [stat.st_size, stat.st_mtime_ns, wheel.sha256]
        if self._marks.get(path.name) == mark:
            return True
        if sha256_file(path) != wheel.sha256:
            return False
        self._marks[path.name] = mark
        return True

    def save(self, names: Iterable[str]) -> None:
        """Keep the marks of these files."""
        text = json.dumps({name: self._marks[name] for name in sorted(names) if name in self._marks})
        temporary = self._path.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(self._path)


def missing(wheels: Sequence[Wheel], dest: Path) -> list[Wheel]:
    """The wheels that a folder does not hold yet, by name and size only."""

    def there(wheel: Wheel) -> bool:
        path = dest / wheel.filename
        return path.is_file() and (not wheel.size or path.stat().st_size == wheel.size)

    return [wheel for wheel in wheels if not there(wheel)]


def require_space(wheels: Sequence[Wheel], dest: Path, reserve: int) -> None:
    """FetchError where the disk does not take the wheels, before the first byte."""
    need, free = sum(wheel.size for wheel in wheels), disk_free(dest)
    if need and free < need + reserve:
        raise FetchError(
            f"{dest} has {free / 1e9:.1f} GB free; {need / 1e9:.1f} GB of wheels are to come and {reserve / 1e9:.1f} GB"
            " stay free; make room"
        )


def _part_size(wheel: Wheel, dest: Path) -> int:
    """How much of a wheel an earlier fetch left."""
    part = dest / f"{wheel.sha256}.part"
    return part.stat().st_size if part.exists() else 0


def _download(wheel: Wheel, part: Path, count: Callable[[int], None]) -> None:
    """Fetch a wheel into `part`, going on from what is there already; OSError or HTTPException on a cut."""
    have = part.stat().st_size if part.exists() else 0
    if wheel.size and have >= wheel.size:
        return
    request = urllib.request.Request(wheel.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        # A server that does not know ranges sends everything from the start with 200.
        with part.open("ab" if answer.status == 206 else "wb") as handle:
            while chunk := answer.read(CHUNK):
                handle.write(chunk)
                count(len(chunk))
        length = answer.headers.get("Content-Length")
    if length and part.stat().st_size < (have if answer.status == 206 else 0) + int(length):
        raise http.client.IncompleteRead(b"")


def pause(attempt: int) -> None:
    """Give a server that failed a while to come back."""
    time.sleep(min(2.0**attempt, 20.0))


def _fetch_one(wheel: Wheel, dest: Path, count: Callable[[int], None]) -> str:
    """Bring one wheel to `dest` over the network; returns why not, or an empty string."""
    part = dest / f"{wheel.sha256}.part"
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            pause(attempt)
        try:
            _download(wheel, part, count)
        except urllib.error.HTTPError as exc:
            reason = f"HTTP {exc.code} from {wheel.url}"
            if exc.code == 416:
                part.unlink(missing_ok=True)
            elif exc.code not in (408, 429) and exc.code < 500:
                return reason
            continue
        except (OSError, http.client.HTTPException) as exc:
            reason = f"{exc} from {wheel.url}"
            continue
        found = sha256_file(part)
        if found == wheel.sha256:
            part.replace(dest / wheel.filename)
            return ""
        part.unlink()
        reason = f"sha256 is {found}, expected {wheel.sha256} ({wheel.url})"
    return reason


def _seed(wheel: Wheel, dest: Path, seeds: Iterable[Path]) -> bool:
    """Take a wheel from another folder, as a link where both are on one disk; False where none has it."""
    for seed in seeds:
        path = seed / wheel.filename
        if not path.is_file() or (wheel.size and path.stat().st_size != wheel.size):
            continue
        if sha256_file(path) != wheel.sha256:
            continue
        target = dest / wheel.filename
        temporary = dest / f"{wheel.filename}.seed"
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copy2(path, temporary)
        temporary.replace(target)
        return True
    return False


def fetch(
    wheels: Sequence[Wheel],
    dest: Path,
    seeds: Sequence[Path] = (),
    built: dict[str, bytes] | None = None,
    keep: Sequence[str] = (),
    exactly: bool = True,
    meter: Meter | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Make `dest` hold exactly the wheels, every one verified; FetchError names all that could not be had.

    seeds: folders to look in before the network; built: contents of the wheels that have no address; keep: names
    of further files that stay; exactly: nothing else stays; meter: is told how far it is; stop: once set, what is under
    way ends, and the next fetch goes on from there.
    """
    dest.mkdir(parents=True, exist_ok=True)
    marks, totals = Marks(dest), {"fetched": 0, "seeded": 0, "kept": 0}
    wanted: list[Wheel] = []
    for wheel in wheels:
        if marks.holds(dest / wheel.filename, wheel):
            totals["kept"] += wheel.size
        elif built and wheel.filename in built:
            temporary = dest / f"{wheel.filename}.seed"
            temporary.write_bytes(built[wheel.filename])
            temporary.replace(dest / wheel.filename)
        elif _seed(wheel, dest, seeds):
            totals["seeded"] += wheel.size
        else:
            wanted.append(wheel)

    guard, meter = threading.Lock(), meter or Meter()

    def count(length: int) -> None:
        with guard:
            totals["fetched"] += length
        meter.add(length)
        if stop and stop.is_set():
            raise FetchError("stopped before all was there; run again to go on")

    # Largest first: the long ones do not start when everything else is done.
    wanted.sort(key=lambda wheel: -wheel.size)
    meter.phase("", sum(wheel.size for wheel in wanted), sum(_part_size(wheel, dest) for wheel in wanted))
    with ThreadPoolExecutor(4) as pool:
        reasons = list(pool.map(lambda wheel: _fetch_one(wheel, dest, count) if wheel.url else "no address", wanted))
    wrong = [
        wheel.filename for wheel in wheels if wheel not in wanted and not marks.holds(dest / wheel.filename, wheel)
    ]
    faults = [f"{wheel.filename}: {reason}" for wheel, reason in zip(wanted, reasons, strict=True) if reason]
    faults += [f"{name}: content does not have the hash of the lock" for name in wrong]
    if faults:
        raise FetchError(f"{len(faults)} of {len(wheels)} wheels could not be had: {'; '.join(faults)}")
    for wheel in wanted:
        marks.holds(dest / wheel.filename, wheel)
    names = {wheel.filename for wheel in wheels}
    marks.save(names)
    for path in dest.iterdir() if exactly else ():
        if path.name not in names and path.name not in (MARK, *keep):
            path.unlink()
    return Result(**totals)
