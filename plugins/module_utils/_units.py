# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Units of one systemd scope: what runs, what it was started from, and whether that is still what lies on the disk.

A unit says in its section `[X-Vllm]` (systemd ignores sections that begin with X-) which files it reads at its start.
When it starts, `vllm-node stamp` writes the sum over these files and the unit itself to its runtime directory. A unit
is stale when the sum is another one now, however that came about and whether or not a play was killed in between.
"""

from __future__ import annotations

import hashlib
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SECTION = "[X-Vllm]"
# Every unit of ours names a program in this folder.
MARK = "/dgx-spark-vllm/"
PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "Result",
    "NeedDaemonReload", "ExecMainStatus", "ExecMainCode", "ActiveEnterTimestampMonotonic", "FragmentPath",
)  # fmt: skip


class UnitError(Exception):
    """systemd said no, or did not answer; the text says what was asked."""


@dataclass(frozen=True)
class Scope:
    """One systemd: the user's own or the system's."""

    name: str
    uid: int

    @property
    def runtime(self) -> Path:
        """Where RuntimeDirectory= of its units lies."""
        return Path("/run") if self.name == "system" else Path(f"/run/user/{self.uid}")

    @property
    def unit_dir(self) -> Path:
        """Where our units lie."""
        if self.name == "system":
            return Path("/etc/systemd/system")
        return Path(pwd.getpwuid(self.uid).pw_dir) / ".config/systemd/user"

    def call(self, *args: str, timeout: float = 60, check: bool = True) -> str:
        """The output of one systemctl call."""
        command = ["/usr/bin/systemctl", "--no-pager", *(["--user"] if self.name == "user" else []), *args]
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        if self.name == "user":
            # Over `become` and in bare sessions nothing has set these two.
            environment["XDG_RUNTIME_DIR"] = f"/run/user/{self.uid}"
            environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path=/run/user/{self.uid}/bus"
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout, check=False, env=environment
            )
        except subprocess.TimeoutExpired as err:
            raise UnitError(f"`systemctl {' '.join(args)}` did not end within {timeout:.0f} s") from err
        if check and done.returncode:
            raise UnitError(f"`systemctl {' '.join(args)}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout


def parse_show(text: str) -> dict[str, dict[str, str]]:
    """The blocks of `systemctl show` by unit name."""
    result: dict[str, dict[str, str]] = {}
    for block in text.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in values:
            result[values["Id"]] = values
    return result


def show(scope: Scope, units: Sequence[str]) -> dict[str, dict[str, str]]:
    """What systemd says of the units, by name; an unknown one has LoadState not-found."""
    if not units or (scope.name == "user" and not (scope.runtime / "bus").exists()):
        # Without a bus there is no systemd of this user, so none of its units runs.
        return {}
    return parse_show(scope.call("show", "--property", ",".join(PROPERTIES), *units))


def inputs(unit_text: str) -> list[Path]:
    """The files that the unit says it reads at its start."""
    _unused, _unused, section = unit_text.partition(f"\n{SECTION}\n")
    paths = []
    for line in section.split("\n[", 1)[0].splitlines():
        key, _unused, value = line.partition("=")
        if key.strip() == "Input":
            paths.append(Path(value.strip()))
    return paths


def _read(path: Path) -> bytes:
    """A file, or the files of a folder with their names; what cannot be read counts as absent."""
    try:
        if path.is_dir():
            # Compiled code comes and goes as programs run; it is made from what is counted here.
            found = (p for p in sorted(path.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)
            parts = [str(p.relative_to(path)).encode() + b"\0" + _read(p) for p in found]
            return b"\0".join(parts)
        return path.read_bytes()
    except OSError:
        return b""


def fingerprint(unit: Path) -> str:
    """The sum over a unit, its drop-ins and its inputs; empty where the unit is absent."""
    if not unit.is_file():
        return ""
    files = [unit, *sorted(unit.with_name(f"{unit.name}.d").glob("*.conf"))]
    digest = hashlib.sha256()
    for path in [*files, *inputs(unit.read_text(encoding="utf-8"))]:
        digest.update(f"{path}\0".encode())
        digest.update(hashlib.sha256(_read(path)).digest())
    return digest.hexdigest()


def stamp_path(scope: Scope, unit: str) -> Path:
    """Where the sum of the running start lies; it vanishes with the unit's runtime directory."""
    return scope.runtime / unit.removesuffix(".service") / "stamp"


def write_stamp(scope: Scope, unit: str) -> str:
    """At a start: keep what it is started from. A definition that systemd has not read yet counts as another one."""
    needs_reload = show(scope, [unit]).get(unit, {}).get("NeedDaemonReload") == "yes"
    value = "started from a definition that lies on the disk no more" if needs_reload else _current(scope, unit)
    path = stamp_path(scope, unit)
    path.write_text(value, encoding="ascii")
    return value


def _current(scope: Scope, unit: str) -> str:
    return fingerprint(scope.unit_dir / unit)


def running_stamp(scope: Scope, unit: str) -> str:
    """The sum that the unit wrote at its last start."""
    try:
        return stamp_path(scope, unit).read_text(encoding="ascii")
    except OSError:
        return ""


def cause(scope: Scope, unit: str, state: Mapping[str, str]) -> str:
    """Why the unit must be started or started again; empty where it runs and is what it should be."""
    active = state.get("ActiveState", "unknown")
    if active == "failed":
        return f"failed ({state.get('Result', '?')})"
    if active != "active":
        return active
    if not running_stamp(scope, unit):
        return "its start is not known"
    return "its definition or its configuration changed" if outdated(scope, unit) else ""


def outdated(scope: Scope, unit: str) -> bool:
    """Whether the last start that is known was from something else than what lies on the disk now."""
    stamp = running_stamp(scope, unit)
    return bool(stamp) and stamp != _current(scope, unit)
