# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Puts a netplan file in force on trial: unless it is confirmed in time, the node takes it back by itself.

The way back is armed before anything changes, as a timer for a node that is up and as a unit for one that was switched
off meanwhile. Everything runs as root, because /etc/netplan and the network are root's.
"""

# Programs and tests call this as well, without Ansible's module object.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ._fabric_netplan import PLACES, TARGET, ours

STATE = "/var/lib/dgx-spark-vllm/fabric"
UNIT = "dgx-spark-fabric-rollback"
APPLY = "dgx-spark-fabric-apply"
APPLY_WAIT_S = 60

Run = Callable[[Sequence[str]], str]


class TrialError(Exception):
    """The trial cannot begin or has failed; the message says what is in force now."""


def run(argv: Sequence[str]) -> str:
    """A program's output; TrialError where it fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TrialError(f"{argv[0]}: {error}") from None
    if done.returncode:
        raise TrialError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip() or f'exit {done.returncode}'}")
    return done.stdout


def read_configs(root: str = "/") -> dict[str, str]:
    """The texts of everything that configures interfaces on this node."""
    result = {}
    for folder in PLACES:
        for path in sorted(Path(root, folder.lstrip("/")).rglob("*")):
            if path.is_file():
                result["/" + str(path.relative_to(root))] = path.read_text(encoding="utf-8", errors="replace")
    return result


def read_macs(names: Iterable[str], root: str = "/") -> dict[str, str]:
    """The hardware addresses of interfaces."""
    paths = {name: Path(root, "sys/class/net", name, "address") for name in names}
    return {name: path.read_text(encoding="ascii").strip() for name, path in paths.items() if path.exists()}


class Trial:
    """One node's trial. `root` stands for / and `run` for the system in tests."""

    def __init__(self, root: str = "/", run: Run = run) -> None:
        self.run = run
        self.target = Path(root, TARGET.lstrip("/"))
        self.state = Path(root, STATE.lstrip("/"))
        self.unit = Path(root, "etc/systemd/system", f"{UNIT}.service")
        self.pending, self.before = self.state / "pending", self.state / "before.yaml"
        self.script, self.applied = self.state / "rollback", self.state / "applied"
        self.settled = self.state / "settled"

    def current(self) -> str:
        """Our file's text; empty where there is none."""
        return self.target.read_text(encoding="utf-8") if self.target.exists() else ""

    def begin(self, content: str, mtus: Mapping[str, int | None], seconds: int) -> bool:
        """Arm the way back, write the file (or remove it, where content is empty), and apply; True if that changed.

        mtus: each interface's MTU now, which netplan would not give back.
        """
        if self.pending.exists():
            raise TrialError("another trial is under way, or was cut off; it is taken back by itself within minutes")
        before = self.current()
        if content == before and not self._loose():
            return False
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(self.before, before, 0o600)
        _write(self.script, self._rollback(before, content, mtus), 0o700)
        _write(self.unit, _unit(self.script, self.pending), 0o644)
        self.applied.unlink(missing_ok=True)
        self.settled.unlink(missing_ok=True)
        self.pending.touch(mode=0o600)
        self.run(["systemctl", "enable", f"{UNIT}.service"])
        # Without a command the timer starts the unit that is there. By itself it might be a minute late.
        timer = [f"--on-active={seconds}s", "--timer-property=AccuracySec=1s"]
        self.run(["systemd-run", f"--unit={UNIT}.service", *timer])
        try:
            self._write_target(content)
            self.run(["netplan", "generate"])
        except TrialError:
            self.take_back()
            raise
        removed = [item for item in ours(before) if item not in ours(content)]
        lines = [f"ip address flush dev {shlex.quote(name)} scope global" for name in removed]
        script = "\n".join([*lines, f"netplan apply > {self.applied}.log 2>&1", f"echo $? > {self.applied}"])
        # A unit of its own: applying may cut the connection that asks for it.
        self.run(["systemd-run", f"--unit={APPLY}", "--collect", "--no-block", "/bin/sh", "-c", script])
        return True

    def settle(self, sound: Callable[[], str], seconds: float, pause: Callable[[float], None] = time.sleep) -> None:
        """Wait until netplan has applied the file and `sound` has nothing to complain of.

        Only a connection that is made after that shows that the node can still be reached.
        """
        deadline = time.monotonic() + APPLY_WAIT_S
        while not (self.applied.exists() and self.applied.read_text(encoding="utf-8").strip()):
            self._must_be_pending()
            if time.monotonic() > deadline:
                self.take_back()
                raise TrialError(f"netplan apply did not end within {APPLY_WAIT_S} s; taken back")
            pause(0.2)
        if self.applied.read_text(encoding="utf-8").strip() != "0":
            log = Path(f"{self.applied}.log").read_text(encoding="utf-8", errors="replace").strip()
            self.take_back()
            raise TrialError(f"netplan apply failed, taken back: {log[-500:]}")
        deadline = time.monotonic() + seconds
        while complaint := sound():
            self._must_be_pending()
            if time.monotonic() > deadline:
                self.take_back()
                raise TrialError(f"{complaint} after {seconds:g} s; taken back")
            pause(0.2)
        self._must_be_pending()
        self.settled.touch(mode=0o600)

    def confirm(self) -> None:
        """Keep what is in force. To be asked for over a connection that was made after `settle`."""
        self._must_be_pending()
        if not self.settled.exists():
            raise TrialError("the trial has not settled yet: nothing to confirm; it is taken back by itself")
        self._disarm()

    def _must_be_pending(self) -> None:
        if not self.pending.exists():
            raise TrialError("the trial was taken back before it was confirmed: the earlier configuration is in force")

    def take_back(self) -> None:
        """Go back now instead of when the time is over."""
        self.run([str(self.script)])
        self._disarm()

    def _disarm(self) -> None:
        # First the mark: without it the way back does nothing, whatever else comes to pass.
        self.pending.unlink(missing_ok=True)
        # A timer that went off is gone already.
        self.run(["/bin/sh", "-c", f"systemctl stop {UNIT}.timer 2>&1 || :"])
        self.run(["/bin/sh", "-c", f"systemctl disable {UNIT}.service 2>&1 || :"])
        self.unit.unlink(missing_ok=True)
        self.run(["systemctl", "daemon-reload"])

    def _loose(self) -> bool:
        """Whether others could read our file: netplan warns of that, and a play mends it."""
        return self.target.exists() and bool(self.target.stat().st_mode & 0o077)

    def _write_target(self, content: str) -> None:
        if content:
            _write(self.target, content, 0o600)
        else:
            self.target.unlink(missing_ok=True)

    def _rollback(self, before: str, content: str, mtus: Mapping[str, int | None]) -> str:
        added = [name for name in ours(content) if name not in ours(before)]
        flush = [f"ip address flush dev {shlex.quote(name)} scope global" for name in added]
        flush += [f"ip link set {shlex.quote(name)} mtu {mtus[name]}" for name in added if mtus.get(name)]
        restore = f"install -m 600 {self.before} {self.target}" if before else f"rm -f {self.target}"
        lines = ["#!/bin/sh", "# Takes back a trial of the fabric's addresses that nobody confirmed.", "set -u"]
        lines += [f"[ -e {self.pending} ] || exit 0", f"systemctl stop {APPLY}.service 2>&1 || :", restore, *flush]
        lines += ["netplan apply", f"rm -f {self.pending}"]
        lines += [f"systemctl --quiet disable {UNIT}.service", f"rm -f {self.unit}"]
        return "\n".join(lines) + "\n"


def _unit(script: Path, pending: Path) -> str:
    return f"""\
[Unit]
Description=Take back a trial of the fabric's addresses that was not confirmed
ConditionPathExists={pending}

[Service]
Type=oneshot
ExecStart={script}

[Install]
WantedBy=multi-user.target
"""


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
        os.fchmod(stream.fileno(), mode)
        os.fsync(stream.fileno())
    temporary.replace(path)
