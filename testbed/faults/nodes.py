"""The nodes of a bed as a fault driver handles them: commands over SSH, cables and power through the bed's own tool."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SSH_S = 30
PLAY_S = 900
PROGRAM = ".local/share/dgx-spark-vllm/bin/vllm-node"
STATE = ".local/share/dgx-spark-vllm/state"
HISTORY = f"{STATE}/history.jsonl"


class FaultError(AssertionError):
    """Something did not come about; the text says what, and how long it was waited for."""


@dataclass(frozen=True)
class Played:
    """How a play ended and what it said."""

    status: int
    output: str

    @property
    def changed(self) -> int:
        """Changed tasks of all hosts, from the recap."""
        return sum(int(count) for count in re.findall(r" changed=(\d+) ", self.output))


class Node:
    """One node, by its name in the bed."""

    def __init__(self, bed: Path, name: str, scope: str) -> None:
        self.bed, self.name = bed, name
        self.systemctl = "systemctl --user" if scope == "user" else "systemctl"
        self.number = name.rpartition("-")[2].lstrip("0")

    def run(self, command: str, check: bool = True, timeout: float = SSH_S, given: str = "") -> str:
        """The output of a shell command of the node's user; `given` is its standard input."""
        done = subprocess.run(
            ["ssh", "-F", str(self.bed / "ssh_config"), "-o", "ConnectTimeout=5", self.name, command],
            capture_output=True,
            text=True,
            input=given,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            raise FaultError(f"{self.name}: `{command}` ended with {done.returncode}: {done.stderr.strip()[:400]}")
        return done.stdout

    def main_pid(self, unit: str) -> int:
        """Main process of a unit, 0 where none runs."""
        return int(self.run(f"{self.systemctl} show -P MainPID {unit}").strip() or 0)

    def pids(self, pattern: str) -> list[int]:
        """Processes whose command line begins with the pattern."""
        return [int(pid) for pid in self.run(f"pgrep -f '^{pattern}'", check=False).split()]

    def signal(self, name: str, pids: list[int]) -> None:
        """Send a signal to processes that must be there."""
        if not pids or 0 in pids:
            raise FaultError(f"{self.name}: there is no process to send {name} to")
        self.run(f"kill -{name} {' '.join(map(str, pids))}")

    def history(self) -> list[dict[str, Any]]:
        """What the node wrote down of its units."""
        lines = self.run(f"cat {HISTORY}", check=False).splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]


class Cluster:
    """All nodes of a bed, the head first.

    site_vars: arguments that every play gets to reach the bed's own state; scope: of the units; rank: how the command
    of a rank begins, which differs between the executors.
    """

    def __init__(
        self, bed: Path, site_vars: Sequence[str] = (), scope: str = "user", rank: str = "ray::RayWorkerProc"
    ) -> None:
        self.bed, self.site_vars, self.rank = bed, tuple(site_vars), rank
        facts = json.loads(self.tool("inventory"))
        self.addresses = {name: v["ansible_host"] for name, v in facts["_meta"]["hostvars"].items()}
        self.nodes = [Node(bed, name, scope) for name in facts["sparks"]["hosts"]]
        self.head, self.worker = self.nodes[0], self.nodes[-1]

    def tool(self, *args: str, timeout: float = 180) -> str:
        """Run the bed's command."""
        done = subprocess.run(
            [str(ROOT / "testbed/bed"), "--dir", str(self.bed), *args],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise FaultError(f"bed {' '.join(args)}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def play(self, book: str, *args: str, kill_after_s: float = 0, timeout: float = PLAY_S) -> Played:
        """Run a playbook as its owner would; with `kill_after_s` it is killed at that time, if it runs for so long."""
        argv = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "inventories/local", book]
        env = {**os.environ, "BED_DIR": str(self.bed), "ANSIBLE_FORCE_COLOR": "0"}
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [*argv, *self.site_vars, *args],
                cwd=ROOT, env=env, stdout=output, stderr=output, text=True, start_new_session=True,
            )  # fmt: skip
            try:
                process.wait(kill_after_s or timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if not kill_after_s:
                    raise FaultError(f"{book} did not end within {timeout:.0f} s") from None
            output.seek(0)
            return Played(process.returncode, output.read())

    def reachable(self) -> str:
        """Empty where every node takes logins and has ended its boot."""
        for node in self.nodes:
            try:
                state = node.run("systemctl is-system-running", check=False).strip()
            except subprocess.TimeoutExpired:
                state = ""
            if state not in ("running", "degraded"):
                return f"{node.name} is {state or 'not reached'}"
        return ""

    def starts(self, since: float) -> int:
        """Starts of the server since a time of this machine, whose clock the nodes share."""
        return self._count("start", since)

    def readies(self, since: float) -> int:
        """How often the server became ready since then."""
        return self._count("ready", since)

    def _count(self, what: str, since: float) -> int:
        events = self.head.history()
        return sum(e["unit"] == "vllm-serve.service" and e["what"] == what and e["time"] > since for e in events)

    def state(self) -> str:
        """State of the server's unit, empty where the head does not answer."""
        try:
            return self.head.run(f"{self.head.systemctl} show -P ActiveState vllm-serve", check=False).strip()
        except subprocess.TimeoutExpired:
            return ""

    def running(self) -> int:
        """Requests that the engine works on now."""
        ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/metrics').read().decode())"
        page = self.head.run(f'python3 -c "{ask}"')
        return round(sum(float(n) for n in re.findall(r"^vllm:num_requests_running{.*} (\S+)$", page, re.MULTILINE)))

    def engines(self) -> dict[str, int]:
        """Engine cores of the head and ranks of every node: more than one of a kind must never be."""
        found = {"cores on the head": len(self.head.pids("VLLM::EngineCore"))}
        return found | {f"ranks on {node.name}": len(node.pids(self.rank)) for node in self.nodes}


def wait_for(probe: Callable[[], str], timeout_s: float, what: str, every_s: float = 1.0) -> float:
    """Wait until the probe returns an empty text; the seconds it took."""
    start = time.monotonic()
    while missing := probe():
        if time.monotonic() - start > timeout_s:
            raise FaultError(f"{what}: not within {timeout_s:.0f} s: {missing}")
        time.sleep(every_s)
    return time.monotonic() - start
