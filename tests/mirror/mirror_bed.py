# SPDX-License-Identifier: GPL-3.0-or-later
"""A bed for the mirror: nodes, the play on them, faults, and what moved over their cables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.bedlib.inventory import existing
from testbed.bedlib.options import Bed
from testbed.models import make_shards

ROOT = Path(__file__).resolve().parents[2]
NAME = "Shards"
HOME = "/home/spark"
MARK = "MIRROR_PLAY"


def bed_folder() -> Path:
    return Path(os.environ.get("BED_DIR") or ROOT / ".bed")


@dataclass(frozen=True)
class Nodes:
    """The bed that BED_DIR names."""

    bed: Bed
    size: int = 2_160_000_000
    shards: int = 24

    @classmethod
    def found(cls, size: int = 2_160_000_000) -> Nodes:
        return cls(existing(bed_folder()), size)

    @property
    def hosts(self) -> list[str]:
        return [self.bed.host(number) for number in self.bed.numbers()]

    def addresses(self) -> dict[str, list[str]]:
        return {self.bed.host(n): [f"{fabric}.{n}" for fabric in self.bed.fabrics()] for n in self.bed.numbers()}

    def verb(self, *words: str) -> None:
        """One of the bed's own verbs."""
        command = [sys.executable, str(ROOT / "testbed" / "bed"), "--dir", str(self.bed.directory), *words]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def run(self, host: str, command: str, check: bool = True) -> str:
        """A command on a node, as its user."""
        bed = [sys.executable, str(ROOT / "testbed" / "bed"), "--dir", str(self.bed.directory), "ssh", host, "--"]
        done = subprocess.run([*bed, command], check=False, capture_output=True, text=True, timeout=300)
        if check and done.returncode:
            raise AssertionError(f"{host}: {command}: {done.stderr}")
        return done.stdout.strip()

    def counted(self, host: str, direction: str = "rx") -> int:
        """Bytes that a node has received (rx) or sent (tx) over the fabric since its power came."""
        namespace = f"{self.bed.prefix}-node{self.hosts.index(host) + 1}"
        listed = subprocess.run(["ip", "-n", namespace, "-j", "-s", "link"], check=True, capture_output=True)
        links = json.loads(listed.stdout)
        return sum(int(link["stats64"][direction]["bytes"]) for link in links if link["ifname"].endswith("f1np1"))

    def source(self) -> Path:
        """The model on the controller, made once."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "dgx-spark-vllm" / "shards" / f"{self.size}-{self.shards}"
        if not folder.is_dir():
            make_shards.make(folder.with_name(f".{folder.name}.{os.getpid()}") / NAME, self.size, self.shards)
            folder.with_name(f".{folder.name}.{os.getpid()}").rename(folder)
        return folder

    def play(self, mark: str = "", **variables: Any) -> subprocess.Popen[str]:
        """The role on these nodes, running."""
        deployment = {
            "head": self.hosts[0],
            "hosts": self.hosts,
            "models_root": f"{HOME}/models",
            "addresses": self.addresses(),
            "is_head": "{{ inventory_hostname == deployment.head }}",
            "config": f"{HOME}/.config/dgx-spark-vllm",
            "release": "",
            "card": {"card": {}, "models": [{"role": "target", "name": NAME, "repo": "x/y", "bytes": self.size}]},
        }
        settings = {
            "deployment": deployment,
            "models_source": {"type": "controller", "path": str(self.source())},
            "models_speculative": {},
            "models_disk_reserve_bytes": 0,
            **variables,
        }
        command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "inventories/local/bed.py"]
        command += [str(Path(__file__).parent / "play.yml"), "-e", json.dumps(settings)]
        environment = {**os.environ, "BED_DIR": str(self.bed.directory), "ANSIBLE_FORCE_COLOR": "0", MARK: mark}
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def play_through(self, **variables: Any) -> str:
        """The role to its end, which must be good; what it said."""
        process = self.play(**variables)
        said, _ = process.communicate(timeout=900)
        assert process.returncode == 0, said[-6000:]
        return said

    @staticmethod
    def kill_play(process: subprocess.Popen[str], mark: str) -> None:
        """SIGKILL to the play's own processes, known by the mark in their environment; SSH connections stay."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0")
                playing = b"ansible-playbook" in (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marked and playing:
                os.kill(int(entry.name), signal.SIGKILL)
        process.wait()

    def sums(self, host: str) -> dict[str, str]:
        """What the node has, by content."""
        listed = self.run(host, f"cd models/{NAME} && find . -type f -print0 | xargs -0 -P 2 -n 4 sha256sum")
        return {line.split("  ", 1)[1]: line.split()[0] for line in listed.splitlines()}

    def arrived(self, host: str) -> int:
        """Bytes on their way to a node."""
        command = f"du -sb models/.dgx-spark-vllm/{NAME}/incoming 2>/dev/null | cut -f1"
        return int(self.run(host, command, check=False) or 0)
