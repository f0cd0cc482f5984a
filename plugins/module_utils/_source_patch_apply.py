# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Bring a source file to where its patch wants it: written in one step, judged afterwards, put back if judged bad."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ._manifest import hexadecimal
from ._release import write_atomic
from ._source_patch import Patch, PatchError, decide, restore, sha256, unified

CHECK_TIMEOUT_S = 120


class Outcome(NamedTuple):
    """What a patch did or would do to a file."""

    changed: bool
    verdict: str
    before: bytes
    after: bytes


def locate(release: Path, package: str, file: str) -> Path:
    """Where a package's file lies in an environment; PatchError where it is not there exactly once."""
    found = sorted(release.glob(f"lib/python3*/site-packages/{package}/{file}"))
    if len(found) != 1:
        raise PatchError(f"{package}/{file} is {len(found)} times below {release}, expected once; is it installed?")
    return found[0]


def shipped_sum(path: Path) -> str:
    """The sum that the package which owns a file recorded for it, or an empty string where none is recorded."""
    for site in path.parents:
        if site.name != "site-packages":
            continue
        name = path.relative_to(site).as_posix()
        for record in site.glob("*.dist-info/RECORD"):
            text = record.read_text(encoding="utf-8")
            if name not in text:
                continue
            for row in csv.reader(text.splitlines()):
                if row[0] == name and row[1].startswith("sha256="):
                    return hexadecimal(row[1].removeprefix("sha256="))
        break
    return ""


def replace(path: Path, content: bytes, like: os.stat_result) -> None:
    """Put a content in a file's place in one step, with the owner and mode that the file had."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as handle:
            handle.write(content)
            handle.flush()
            stat = os.fstat(handle.fileno())
            if (stat.st_uid, stat.st_gid) != (like.st_uid, like.st_gid):
                os.fchown(handle.fileno(), like.st_uid, like.st_gid)
            os.fchmod(handle.fileno(), like.st_mode & 0o7777)
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def drop_bytecode(path: Path) -> None:
    """Remove what was compiled from an earlier content: an interpreter may trust it by its name alone."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink(missing_ok=True)


def _syntax(path: Path, content: bytes) -> None:
    """PatchError where the new content is not Python."""
    if path.suffix == ".py":
        try:
            compile(content, str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as exc:
            raise PatchError(f"{path}: the patched content is not Python, the file is untouched: {exc}") from exc


def self_check(patch: Patch, path: Path, content: bytes, python: Sequence[str]) -> None:
    """PatchError where the file on disk is not the content, or the patch's own program does not accept it."""
    if path.read_bytes() != content:
        raise PatchError(f"{path}: what was read back is not what was written")
    if not patch.check:
        return
    # -I: nothing of the user's environment has a say; -B: no bytecode of the check's making.
    argv = [*(python or [sys.executable]), "-I", "-B", "-c", patch.check, str(path)]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise PatchError(f"patch {patch.name}: the check of {path} did not run: {exc}") from exc
    if done.returncode:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise PatchError(f"patch {patch.name}: the check of {path} failed: {tail[0]}")


def _backup_path(keep: Path, patch: Patch) -> Path:
    """Where the original of a patched file is kept."""
    return keep / f"{patch.name}.orig"


def _read(file: Path) -> dict[str, Any]:
    """A record, or an empty dict."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(file.read_text()))
    return {}


def _relative(keep: Path, path: Path) -> str:
    """How records name a file."""
    base = keep.parent
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else str(path)


def _others(keep: Path, patch: Patch, path: Path) -> dict[Path, dict[str, Any]]:
    """Records of other patches that are in the same file."""
    found = {file: _read(file) for file in sorted(keep.glob("*.json")) if file.stem != patch.name}
    name = _relative(keep, path)
    return {file: entry for file, entry in found.items() if entry.get("file") == name}


def _expected_sum(keep: Path | None, patch: Patch, path: Path, found: str) -> str:
    """The sum that a file should have: what another patch made of it, else what its package shipped."""
    if keep and any(entry.get("after_sha256") == found for entry in _others(keep, patch, path).values()):
        return found
    return shipped_sum(path)


def _record(keep: Path, patch: Patch, path: Path, outcome: Outcome, check_mode: bool) -> bool:
    """Write down what was decided, for whoever looks later; True where that was not written down already."""
    file = keep / f"{patch.name}.json"
    entry: dict[str, Any] = {
        "verdict": "present" if outcome.verdict == "applied" else outcome.verdict,
        "patch_sha256": patch.sha256,
        "file": _relative(keep, path),
        "before_sha256": sha256(outcome.before),
        "after_sha256": sha256(outcome.after),
    }
    known = _read(file)
    if known and outcome.verdict == "present" and known.get("after_sha256") == entry["after_sha256"]:
        entry["before_sha256"] = known.get("before_sha256", entry["before_sha256"])
    if known == entry:
        return False
    if not check_mode:
        write_atomic(file, json.dumps(entry, indent=1) + "\n")
    return True


def _tell_others(keep: Path, patch: Patch, path: Path, outcome: Outcome) -> None:
    """Let the records of other patches of the same file hold the sum that it has now."""
    after = sha256(outcome.after)
    for file, entry in _others(keep, patch, path).items():
        if entry.get("after_sha256") != after:
            write_atomic(file, json.dumps({**entry, "after_sha256": after}, indent=1) + "\n")


def _forget(keep: Path, patch: Patch, check_mode: bool) -> bool:
    """Remove the record and the kept original; True where there was something."""
    there = [path for path in (keep / f"{patch.name}.json", _backup_path(keep, patch)) if path.exists()]
    for path in there if not check_mode else []:
        path.unlink()
    return bool(there)


def apply(patch: Patch, path: Path, state: str, keep: Path | None, python: Sequence[str], check_mode: bool) -> Outcome:
    """Bring a file to a patch's state. PatchError leaves the file with the bytes it had.

    keep: folder for the kept original and the record, or None; python: interpreter for the patch's check.
    """
    if not path.is_file():
        raise PatchError(f"patch {patch.name}: {path} is not there, or is no file")
    path = path.resolve()
    before, like = path.read_bytes(), path.stat()
    backup = _backup_path(keep, patch) if keep else None
    if state == "absent":
        kept = backup.read_bytes() if backup and backup.exists() else None
        decision = restore(patch, before, kept)
    else:
        decision = decide(patch, before, _expected_sum(keep, patch, path, sha256(before)))
    outcome = Outcome(decision.content != before, decision.verdict, before, decision.content)
    if outcome.changed:
        _syntax(path, decision.content)
        if not check_mode:
            _write(patch, path, outcome, like, backup if state == "present" else None, python)
    elif decision.verdict == "present":
        self_check(patch, path, before, python)
    if keep and state == "present":
        noted = _record(keep, patch, path, outcome, check_mode)
        outcome = outcome._replace(changed=outcome.changed or noted)
    elif keep:
        forgotten = _forget(keep, patch, check_mode)
        outcome = outcome._replace(changed=outcome.changed or forgotten)
    if keep and not check_mode and decision.content != before:
        _tell_others(keep, patch, path, outcome)
    return outcome


def _write(
    patch: Patch, path: Path, outcome: Outcome, like: os.stat_result, backup: Path | None, python: Sequence[str]
) -> None:
    """Write, drop what was compiled before, judge; put the original back where it is judged bad."""
    if backup:
        backup.parent.mkdir(parents=True, exist_ok=True)
        temporary = backup.with_name(f".{backup.name}.{os.getpid()}")
        temporary.write_bytes(outcome.before)
        shutil.copymode(path, temporary)
        temporary.replace(backup)
    replace(path, outcome.after, like)
    drop_bytecode(path)
    try:
        if outcome.verdict == "applied":
            self_check(patch, path, outcome.after, python)
    except PatchError:
        replace(path, outcome.before, like)
        os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns))
        drop_bytecode(path)
        raise


def diff(path: Path, outcome: Outcome) -> dict[str, str]:
    """Ansible's diff: the change as unified text where there is one."""
    text = unified(str(path), outcome.before, outcome.after)
    return {"prepared": text} if text else {}
