# SPDX-License-Identifier: GPL-3.0-or-later
"""A bed as a test drives it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from testbed.bedlib import options, system
from testbed.bedlib.options import CHECKOUT, Bed

REGISTRY = Path("/run/dgx-spark-bed")
TOOL = str(CHECKOUT / "testbed" / "bed")


class Handle:
    """A bed as a test drives it: by the command, as a user does."""

    def __init__(self, directory: Path, prefix: str, net: str, *extra: str) -> None:
        self.directory, self.prefix, self.net = directory, prefix, net
        self.options = ["--dir", str(directory), "--prefix", prefix, "--net", net, "--fabric", "192.168.213", *extra]

    def argv(self, *verb: str) -> list[str]:
        return [TOOL, *self.options, *verb]

    def call(self, *verb: str, check: bool = True, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self.argv(*verb), capture_output=True, text=True, timeout=timeout, check=False)
        assert not check or done.returncode == 0, f"{verb}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def ssh(self, number: int, command: str, check: bool = True) -> str:
        return self.call("ssh", str(number), command, check=check).stdout.strip()

    @property
    def bed(self) -> Bed:
        kept = options.load(self.directory)
        assert kept is not None
        return kept[0]

    def traces(self) -> list[str]:
        """Whatever on this machine bears the bed's names."""
        found = [f"link {link['ifname']}" for link in json.loads(system.run(["ip", "-j", "link"]))]
        found += [f"netns {path.name}" for path in Path("/run/netns").glob("*")]
        found += [f"run {path}" for path in (*Path("/run/systemd/nspawn").glob("*/*"), *REGISTRY.glob("*"))]
        found += [f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for root, folders, _ in os.walk("/sys/fs/cgroup"):
            found += [f"cgroup {root}/{name}" for name in folders if name.startswith(f"{self.prefix}-")]
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found.append(f"process {path.parent.name} {line}")
        marks = (f"{self.prefix}-", f"/{self.prefix}.", str(self.directory))
        left = [line for line in found if any(mark in line for mark in marks)]
        return left + ([f"folder {self.directory}"] if self.directory.exists() else [])
