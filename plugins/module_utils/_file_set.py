# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""A set of small files, brought to their declared state as a whole.

`plan` reads and compares, `apply` writes: every new content is written beside its place and checked there first, and
only then are all of them renamed into place, so that bad input never leaves half of a set.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class FileSetError(Exception):
    """The set cannot be brought about; the text names the path."""


LONG_NEW_FILE = 100
"""Lines from which on a diff only counts the lines of a file that was not there before."""


@dataclass(frozen=True)
class Wanted:
    """One file or folder as declared."""

    path: Path
    kind: str  # "file", "directory" or "absent"
    content: bytes = b""
    mode: int = 0o644
    secret: bool = False
    verify: bool = False
    owner: tuple[int, int] = (0, 0)


@dataclass
class Change:
    """One path that is not as declared."""

    wanted: Wanted
    before: bytes | None
    content_differs: bool
    reasons: list[str] = field(default_factory=list)


def _owner(item: Mapping[str, Any], default: tuple[int, int]) -> tuple[int, int]:
    """User and group of one entry, each its own or the default."""
    uid, gid = item.get("uid"), item.get("gid")
    return (default[0] if uid is None else int(uid), default[1] if gid is None else int(gid))


def _content(item: Mapping[str, Any], secret: bool) -> bytes:
    """The bytes of one entry. A secret is declared without its final line break: what Ansible writes into the node's
    journal is an escaped form, in which it finds, and blanks, only values without one."""
    text = str(item.get("content") or "")
    return (text + "\n" if secret and not text.endswith("\n") else text).encode()


def parse(
    files: Iterable[Mapping[str, Any]],
    secrets: Iterable[Mapping[str, Any]],
    dirs: Iterable[Mapping[str, Any]],
    owner: tuple[int, int],
) -> list[Wanted]:
    """The declarations as one list, folders first; raises FileSetError for one that makes no sense."""
    wanted = [Wanted(Path(d["path"]), "directory", mode=int(str(d["mode"]), 8), owner=_owner(d, owner)) for d in dirs]
    for secret, items in ((False, files), (True, secrets)):
        for item in items:
            absent = item.get("state") == "absent"
            if not absent and item.get("content") is None:
                raise FileSetError(f"{item['path']}: content is missing")
            wanted.append(
                Wanted(
                    path=Path(item["path"]),
                    kind="absent" if absent else "file",
                    content=_content(item, secret),
                    mode=int(str(item.get("mode") or "0644"), 8),
                    secret=secret,
                    verify=bool(item.get("verify")) and not absent,
                    owner=_owner(item, owner),
                )
            )
    seen: set[Path] = set()
    for one in wanted:
        if not one.path.is_absolute():
            raise FileSetError(f"{one.path}: an absolute path is needed")
        if one.path in seen:
            raise FileSetError(f"{one.path}: declared twice")
        seen.add(one.path)
    return wanted


def strays(purge: Iterable[Mapping[str, Any]], wanted: Iterable[Wanted]) -> list[Wanted]:
    """Files that match a purge pattern and are not declared: they are to go."""
    keep = {one.path for one in wanted}
    found = []
    for rule in purge:
        folder = Path(rule["path"])
        for path in sorted(folder.glob(rule["pattern"])) if folder.is_dir() else ():
            if path not in keep and (path.is_file() or path.is_symlink()):
                found.append(Wanted(path, "absent"))
    return found


def compare(wanted: Wanted) -> Change | None:
    """What differs between a path and its declaration, or None."""
    try:
        info = wanted.path.lstat()
    except FileNotFoundError:
        return None if wanted.kind == "absent" else Change(wanted, None, True, ["absent"])
    except NotADirectoryError as err:
        raise FileSetError(f"{wanted.path}: a part of the path is no folder") from err
    is_dir = stat.S_ISDIR(info.st_mode)
    if is_dir != (wanted.kind == "directory"):
        raise FileSetError(f"{wanted.path}: is {'a folder' if is_dir else 'no folder'}; move it away")
    if wanted.kind == "absent":
        return Change(wanted, wanted.path.read_bytes() if wanted.path.is_file() else b"", True, ["present"])
    before = b"" if is_dir else wanted.path.read_bytes()
    reasons = []
    differs = not is_dir and (before != wanted.content or stat.S_ISLNK(info.st_mode))
    if differs:
        reasons.append("content")
    if stat.S_IMODE(info.st_mode) != wanted.mode and not stat.S_ISLNK(info.st_mode):
        reasons.append(f"mode {stat.S_IMODE(info.st_mode):04o}")
    if (info.st_uid, info.st_gid) != wanted.owner:
        reasons.append(f"owner {info.st_uid}:{info.st_gid}")
    return Change(wanted, before, differs, reasons) if reasons else None


def plan(wanted: Iterable[Wanted]) -> list[Change]:
    """Every path that is not as declared, in the order of the declarations."""
    return [change for one in wanted if (change := compare(one)) is not None]


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _write_beside(change: Change) -> None:
    """The new content under a temporary name in the same folder, on the disk."""
    path = _beside(change.wanted.path)
    path.unlink(missing_ok=True)
    # Never readable by others for even a moment: created 0600, opened up afterwards.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(change.wanted.content)
        os.fchown(file.fileno(), *change.wanted.owner)
        os.fchmod(file.fileno(), change.wanted.mode)
        file.flush()
        os.fsync(file.fileno())


def apply(changes: Iterable[Change], verify: Callable[[list[Wanted]], None]) -> None:
    """Bring about all changes; `verify` may raise FileSetError while nothing is in its place yet."""
    changes = list(changes)
    files = [c for c in changes if c.wanted.kind == "file"]
    if checked := [c.wanted for c in files if c.wanted.verify]:
        verify(checked)
    for change in changes:
        if change.wanted.kind == "directory":
            _make_folder(change.wanted)
    pending = [c for c in files if c.content_differs]
    try:
        for change in pending:
            _write_beside(change)
    except OSError as err:
        for change in pending:
            _beside(change.wanted.path).unlink(missing_ok=True)
        raise FileSetError(f"cannot write {err.filename}: {err.strerror}") from err
    for change in pending:
        _beside(change.wanted.path).replace(change.wanted.path)
    for change in changes:
        path = change.wanted.path
        if change.wanted.kind == "absent":
            path.unlink(missing_ok=True)
        elif not change.content_differs:
            os.chown(path, *change.wanted.owner)
            path.chmod(change.wanted.mode)


def _make_folder(wanted: Wanted) -> None:
    """The folder with its parents; parents that are made on the way get the same owner."""
    missing = [p for p in (wanted.path, *wanted.path.parents) if not p.exists()]
    for path in reversed(missing):
        path.mkdir(mode=wanted.mode if path == wanted.path else 0o755)
        os.chown(path, *wanted.owner)
    os.chown(wanted.path, *wanted.owner)
    wanted.path.chmod(wanted.mode)


def diff(changes: Iterable[Change]) -> list[dict[str, str]]:
    """The changes for `--diff`; of a secret only that it differs."""
    result = []
    for change in changes:
        one = change.wanted
        header = f"{one.path} ({', '.join(change.reasons)})"
        before = "" if change.before is None else change.before.decode(errors="replace")
        after = "" if one.kind == "absent" else one.content.decode(errors="replace")
        if change.before is None and (lines := after.count("\n")) > LONG_NEW_FILE:
            # A program that comes with the collection: its name says more than all its lines.
            after = f"(a new file of {lines} lines)\n"
        if one.secret:
            before, after = "" if change.before is None else "(secret as it is)\n", "(secret as declared)\n"
        if one.kind == "directory" or not change.content_differs:
            before, after = "", f"mode {one.mode:04o}\n"
        result.append({"before_header": header, "after_header": header, "before": before, "after": after})
    return result
