# SPDX-License-Identifier: GPL-3.0-or-later
"""A bed for the mirror: nodes, the play on them, faults, and what moved over their cables."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.bedlib.inventory import existing
from testbed.bedlib.options import USER, Bed
from testbed.models import make_shards

ROOT = Path(__file__).resolve().parents[2]
NAME = "Shards"
HOME = "/home/spark"
MARK = "MIRROR_PLAY"


def bed_folder() -> Path:
    return Path(os.environ.get("BED_DIR") or ROOT / ".bed")


needs_bed = pytest.mark.skipif(not (bed_folder() / "bed.json").exists(), reason="needs a bed: testbed/bed up")


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

    def copy(self, host: str, folder: Path, into: str) -> None:
        """A folder of the controller onto a node."""
        self.run(host, f"mkdir -p {into}")
        number = self.hosts.index(host) + 1
        options = ["-o", f"UserKnownHostsFile={self.bed.path('known_hosts')}", "-i", str(self.bed.path("id_ed25519"))]
        place = f"{USER}@{self.bed.address(number)}:{into}"
        subprocess.run(["scp", "-q", "-r", *options, str(folder), place], check=True, timeout=120)

    def folder(self, host: str) -> Path:
        """The node's models as this machine sees them."""
        return self.bed.node_path(self.hosts.index(host) + 1, "upper", HOME.strip("/"), "models")

    def cached(self, host: str) -> int:
        """Bytes of the model's shards in the page cache, by this machine's kernel, which is the node's."""
        shards = sorted(map(str, (self.folder(host) / NAME).glob("*.safetensors")))
        counted = ["fincore", "-nb", "-o", "RES", *shards]
        return sum(map(int, subprocess.run(counted, check=True, capture_output=True, text=True).stdout.split()))

    def by_rail(self, host: str, direction: str = "rx") -> dict[str, int]:
        """Bytes that a node has received (rx) or sent (tx) over each rail since its power came."""
        namespace = f"{self.bed.prefix}-node{self.hosts.index(host) + 1}"
        listed = subprocess.run(["ip", "-n", namespace, "-j", "-s", "link"], check=True, capture_output=True)
        links = json.loads(listed.stdout)
        rails = [link for link in links if link["ifname"].endswith("f1np1") and "UP" in link["flags"]]
        return {link["ifname"]: int(link["stats64"][direction]["bytes"]) for link in rails}

    def counted(self, host: str, direction: str = "rx") -> int:
        """Bytes that a node has received or sent over the fabric since its power came."""
        return sum(self.by_rail(host, direction).values())

    def source(self) -> Path:
        """The model on the controller, made once."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "dgx-spark-vllm" / "shards" / f"{self.size}-{self.shards}"
        if not folder.is_dir():
            make_shards.make(folder.with_name(f".{folder.name}.{os.getpid()}") / NAME, self.size, self.shards)
            folder.with_name(f".{folder.name}.{os.getpid()}").rename(folder)
        return folder

    def play(self, mark: str = "", arguments: Sequence[str] = (), **variables: Any) -> subprocess.Popen[str]:
        """The role on these nodes, running; `model` names another model than the large one."""
        name = variables.pop("model", NAME)
        model: dict[str, Any] = {"role": "target", "name": name, "path": f"{HOME}/models/{name}", "repo": "x/y"}
        model |= {"bytes": self.size if name == NAME else 0}
        deployment = {
            "head": self.hosts[0],
            "hosts": self.hosts,
            "user": USER,
            "root": f"{HOME}/.local/share/dgx-spark-vllm",
            "models_root": f"{HOME}/models",
            "addresses": self.addresses(),
            "is_head": "{{ inventory_hostname == deployment.head }}",
            "config": f"{HOME}/.config/dgx-spark-vllm",
            "release": "",
            "card": {"card": {}, "models": [model]},
        }
        settings = {
            "deployment": deployment,
            "models_source": {"type": "controller", "path": str(self.source())},
            "models_speculative": {},
            "models_disk_reserve_bytes": 0,
            **variables,
        }
        command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "inventories/local/bed.py"]
        command += [str(Path(__file__).parent / "play.yml"), "-e", json.dumps(settings), *arguments]
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

    def play_through(self, *arguments: str, **variables: Any) -> str:
        """The role to its end, which must be good; what it said."""
        process = self.play(arguments=arguments, **variables)
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

    def sums(self, host: str, name: str = NAME) -> dict[str, str]:
        """What the node has, by content."""
        listed = self.run(host, f"cd models/{name} && find . -type f -print0 | xargs -0 -P 2 -n 4 sha256sum")
        return {line.split("  ", 1)[1]: line.split()[0] for line in listed.splitlines()}

    def arrived(self, host: str) -> int:
        """Bytes on their way to a node, seen from outside: to ask the node itself would slow it down."""
        folder = self.folder(host) / ".dgx-spark-vllm" / NAME / "incoming"
        total = 0
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                total += path.stat().st_size if path.is_file() else 0
        return total
