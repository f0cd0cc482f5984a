# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the scenario `kernel` share: a node with its rails, read past the collection's own code."""

from __future__ import annotations

import json
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.modules import roce_gid_info

from testbed.vm.settings import RAILS, Rail

ROOT = Path(__file__).resolve().parents[2]
HOME = "/home/spark/.local/share/dgx-spark-vllm"
PROGRAM, LIBRARY = f"{HOME}/bin/fabric-env", f"{HOME}/lib"
CALL = (
    "import importlib, json, sys; _, module, name, *given = sys.argv; "
    "function = getattr(importlib.import_module(f'dgx_spark_vllm.{module}'), name); "
    "print(json.dumps(function(*map(json.loads, given))))"
)
SUBNETS = [f"{rail.subnet}.0/24" for rail in RAILS]
ZERO = ":".join(["0000"] * 8)


def mapped(address: str) -> str:
    """The GID that the kernel makes of an IPv4 address."""
    digits = f"{int(IPv4Address(address)):08x}"
    return f"0000:0000:0000:0000:0000:ffff:{digits[:4]}:{digits[4:]}"


def table_path(rail: Rail) -> str:
    return f"/sys/class/infiniband/{rail.device}/ports/1"


@dataclass(frozen=True)
class Node:
    """One VM as the user `spark` sees it over SSH."""

    number: int
    host: Any

    def address(self, rail: Rail) -> str:
        return rail.address(self.number)

    def out(self, command: str) -> str:
        """Standard output of a command that must succeed."""
        done = self.host.run(command)
        assert done.rc == 0, f"{self.number}: {command}: exit {done.rc}: {done.stderr}"
        return str(done.stdout).strip()

    def root(self, script: str) -> None:
        done = self.host.run("sudo sh -euc %s", script)
        assert done.rc == 0, f"{self.number}: {script}: exit {done.rc}: {done.stderr}"

    def until(self, condition: str, seconds: int = 20) -> None:
        """Wait until a shell condition holds."""
        done = self.host.run("timeout %s sh -c %s", str(seconds), f"until {condition}; do sleep 0.2; done")
        assert done.rc == 0, f"{self.number}: not within {seconds} s: {condition}"

    def module(self) -> dict[str, Any]:
        """The result of the module with nothing given."""
        found: dict[str, Any] = self.host.ansible("dgx_spark.vllm.roce_gid_info", check=False)
        return found

    def fabric(self, **arguments: Any) -> dict[str, Any]:
        """What the module would answer, good or bad, by the code that lies on the node: Ansible would cost seconds."""
        given = {name: spec.get("default") for name, spec in roce_gid_info.ARGUMENTS.items()} | arguments
        found: dict[str, Any] = self.call("_fabric_module", "gather", given)[0]
        return found

    def call(self, module: str, function: str, *given: Any) -> Any:
        """A function of the collection's code that lies on the node."""
        command = ["env", f"PYTHONPATH={LIBRARY}", "python3", "-c", CALL, module, function, *map(json.dumps, given)]
        return json.loads(self.out(shlex.join(command)))

    def slots(self, rail: Rail) -> dict[int, str]:
        """The GIDs of the kernel's table, without the empty slots."""
        found = self.out(f"cd {table_path(rail)}/gids && grep -v {ZERO} *")
        pairs = (line.split(":", 1) for line in found.splitlines())
        return {int(index): gid for index, gid in pairs}

    def index(self, rail: Rail) -> int:
        """Where the kernel keeps this node's address now."""
        wanted = mapped(self.address(rail))
        found = [index for index, gid in self.slots(rail).items() if gid == wanted]
        assert len(found) == 1, f"{self.number}: {self.slots(rail)}"
        return found[0]

    def take_address(self, rail: Rail) -> None:
        self.root(f"ip address del {self.address(rail)}/24 dev {rail.netdev}")
        self.until(f"! grep -q {mapped(self.address(rail))} {table_path(rail)}/gids/*")

    def give_address(self, rail: Rail) -> None:
        self.root(f"ip address replace {self.address(rail)}/24 dev {rail.netdev}")
        self.until(f"grep -q {mapped(self.address(rail))} {table_path(rail)}/gids/*")

    def move_index(self, rail: Rail) -> None:
        """Let another address take the slot while ours is away; then it goes, and leaves a hole below us."""
        passing = f"198.51.100.{rail.index + 1}"
        self.take_address(rail)
        self.root(f"ip address add {passing}/32 dev {rail.netdev}")
        self.until(f"grep -q {mapped(passing)} {table_path(rail)}/gids/*")
        self.give_address(rail)
        self.root(f"ip address del {passing}/32 dev {rail.netdev}")
        self.until(f"! grep -q {mapped(passing)} {table_path(rail)}/gids/*")


def ping_pong(server: Node, client: Node, rail: Rail, indices: tuple[int, int], port: int) -> tuple[bool, str]:
    """RDMA over one rail with the given GID indices (server's, client's), with the client's words."""
    common = f"timeout 30 ibv_rc_pingpong -d {rail.device} -i 1 -p {port} -n 20 -m 4096 -s 16384"
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(server.host.run, f"{common} -g {indices[0]}")
        server.until(f"ss -Hltn sport = :{port} | grep -q .")
        done = client.host.run(f"{common} -g {indices[1]} {server.address(rail)}")
        if done.rc:
            server.host.run(f"pkill -f 'ibv_rc_pingpon[g].*-p {port} '")
        served = serving.result()
    return done.rc == 0 and served.rc == 0, f"{done.stdout}{done.stderr}{served.stdout}{served.stderr}"


def machine(verb: str) -> None:
    """A verb of the VM tool, which pulls cables from outside the nodes."""
    subprocess.run([str(ROOT / "testbed/vm/vm"), verb], check=True, timeout=60)


def ping_pong_once(node: Node, rail: Rail, size: int) -> tuple[bool, str]:
    """One large message from a node to itself, by processes of user units, whose limits are what is looked at."""
    index = node.index(rail)
    program = f"ibv_rc_pingpong -d {rail.device} -g {index} -p 18530 -n 1 -r 1 -s {size}"
    unit = "systemd-run --user --quiet --pipe --wait --collect -p LimitMEMLOCK=infinity -p RuntimeMaxSec=60"
    script = f"""{unit} {program} & server=$!
for n in $(seq 50); do ss -Hltn sport = :18530 | grep -q . && break; kill -0 $server || break; sleep 0.2; done
{unit} {program} {node.address(rail)}; client=$?
wait $server && [ $client = 0 ]"""
    done = node.host.run("timeout 90 sh -c %s", script)
    return done.rc == 0, f"{done.stdout}{done.stderr}"
