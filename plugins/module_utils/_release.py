# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Releases of the engine on a node: where they lie, which one is current, which were before, which may go.

A release is a folder of its own; it is complete when its manifest is there. `current` is a link that people follow;
units name the release itself, so a restart in the middle of a switch cannot mix two.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._manifest import NAME as MANIFEST


class BusyError(RuntimeError):
    """Somebody else is at work on the release."""


def releases(root: Path) -> Path:
    """Folder of all releases."""
    return root / "releases"


def complete(root: Path) -> list[str]:
    """The names of the releases that were built to the end."""
    return sorted(path.parent.name for path in releases(root).glob(f"[!.]*/{MANIFEST}"))


def current(root: Path) -> str:
    """The path of the current release, or an empty string."""
    link = root / "current"
    return os.path.realpath(link) if link.is_symlink() else ""


def write_atomic(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a small file so that a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as handle:
        os.fchmod(handle.fileno(), mode)
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """A small JSON file, or an empty dict where it is not there or not readable as one."""
    with contextlib.suppress(OSError, ValueError):
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict):
            return data
    return {}


def history(root: Path) -> list[str]:
    """Paths that were current, the latest first."""
    return [str(path) for path in read_json(root / "state" / "engine.json").get("history", [])]


def make_current(root: Path, path: str) -> bool:
    """Let `current` point to a release and remember what it pointed to; False where it does already."""
    before = current(root)
    if before == os.path.realpath(path):
        return False
    # History first: a kill in between leaves an entry too many, never a release that cannot be gone back to.
    past = list(dict.fromkeys(item for item in [path, before, *history(root)] if item))
    write_atomic(root / "state" / "engine.json", json.dumps({"history": past[:16]}, indent=1) + "\n")
    temporary = root / f".current.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(path)
    temporary.replace(root / "current")
    return True


def in_use(root: Path, unit_dir: Path) -> set[str]:
    """Names of releases that a running process or a unit names."""
    names = {path.name for path in releases(root).glob("[!.]*")}
    used: set[str] = set()
    texts = [*Path("/proc").glob("[0-9]*/cmdline"), *unit_dir.glob("**/*")]
    for path in texts:
        with contextlib.suppress(OSError):
            if path.is_file():
                text = path.read_bytes()
                used |= {name for name in names if f"releases/{name}".encode() in text}
    return used


def prunable(root: Path, keep: int, unit_dir: Path) -> list[str]:
    """Releases that may go: not current, not in use, and not among the `keep` latest ones before the current one."""
    here = current(root)
    past = [Path(path).name for path in history(root) if path != here]
    everything = {path.name for path in releases(root).glob("[!.]*") if path.is_dir()}
    kept = {Path(here).name, *[name for name in past if name in everything][:keep], *in_use(root, unit_dir)}
    return sorted(name for name in everything - kept if not being_built(root, name))


def being_built(root: Path, name: str) -> bool:
    """Whether somebody holds the lock of a release."""
    try:
        handle = os.open(releases(root) / f".{name}.lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def remove(root: Path, name: str) -> None:
    """Delete a release with its wheels: its manifest first, so that what is left is never taken for a whole one."""
    (releases(root) / name / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(releases(root) / name, ignore_errors=True)
    shutil.rmtree(releases(root) / f".{name}.cache", ignore_errors=True)
    shutil.rmtree(root / "wheelhouse" / name, ignore_errors=True)


def drop_wheels(root: Path) -> None:
    """Delete the wheels of all releases: half the disk that a release takes, and to be had again."""
    shutil.rmtree(root / "wheelhouse", ignore_errors=True)


@contextlib.contextmanager
def exclusive(root: Path, name: str, wait_s: int) -> Iterator[int]:
    """Hold the lock of a release; yields its descriptor, for children to inherit.

    A build that outlives the play that began it holds the lock, and so do its children: whoever comes next waits for
    it, and then finds its work done. BusyError after `wait_s` seconds.
    """
    releases(root).mkdir(parents=True, exist_ok=True)
    handle = os.open(releases(root) / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def give_up(_signal: int, _frame: object) -> None:
        raise BusyError(f"release {name} is being worked on by another process for more than {wait_s} s")

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(wait_s)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        signal.alarm(0)
        yield handle
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
        os.close(handle)
