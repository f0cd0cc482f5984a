# SPDX-License-Identifier: GPL-3.0-or-later
"""The program `fabric-env`, installed as a node has it and run as a unit runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.plugins.module_utils import fabric_trees as trees

COLLECTION = Path(__file__).resolve().parents[4]
SHOW_ENVIRONMENT = ("--", sys.executable, "-c", "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv]))")


class Node:
    """A node's folder: configuration, state, and a sysfs tree."""

    def __init__(self, home: Path, program: Path) -> None:
        self.home, self.root, self.program = home, home / "root", program

    def configure(self, **keys: Any) -> None:
        data = {"root": str(self.root), "subnets": ["192.168.100.0/24", "192.168.101.0/24"], "wait_s": 0, **keys}
        (self.home / "fabric.json").write_text(json.dumps(data), encoding="utf-8")

    def argv(self, *arguments: str) -> list[str]:
        files = ["--config", str(self.home / "fabric.json"), "--state", str(self.home / "state/fabric.json")]
        return [str(self.program), *files, *arguments]

    def call(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        clean = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), **environ}
        return subprocess.run(self.argv(*arguments), capture_output=True, text=True, env=clean, timeout=60, check=False)

    def environment(self, **environ: str) -> dict[str, str]:
        done = self.call("run", *SHOW_ENVIRONMENT, **environ)
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout)[0]
        return found

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.home / "state/fabric.json").read_text(encoding="utf-8"))
        return state


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library and the launcher as a node has them."""
    home = tmp_path_factory.mktemp("installed")
    library = home / "lib/dgx_spark_vllm"
    library.mkdir(parents=True)
    for path in (COLLECTION / "plugins/module_utils").glob("_*.py"):
        shutil.copy(path, library / path.name)
    (library / "__init__.py").touch()
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(library)], check=True)
    launcher = home / "bin/fabric-env"
    launcher.parent.mkdir()
    text = (COLLECTION / "roles/programs/files/launcher.py.in").read_text(encoding="utf-8")
    # The controller's Python stands for the node's.
    text = text.replace("@MODULE@", "_fabric_env").replace("/usr/bin/python3", sys.executable, 1)
    launcher.write_text(text, encoding="utf-8")
    launcher.chmod(0o755)
    return launcher


@pytest.fixture
def node(tmp_path: Path, program: Path) -> Node:
    node = Node(tmp_path, program)
    trees.spark(node.root, 1)
    node.configure()
    return node


def move_row(node: Node, old: int, new: int) -> None:
    """The kernel gave the address another slot on both twins."""
    for device in ("rocep1s0f1", "roceP2p1s0f1"):
        port = node.root / "sys/class/infiniband" / device / "ports/1"
        for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
            (port / name / str(old)).rename(port / name / str(new))


def test_the_command_gets_the_environment_and_its_own_exit_code(node: Node) -> None:
    environment = node.environment()
    assert environment["NCCL_IB_HCA"] == "=rocep1s0f1:1,roceP2p1s0f1:1"
    assert environment["NCCL_IB_GID_INDEX"] == "3"
    assert environment["VLLM_HOST_IP"] == "192.168.100.1"
    assert node.call("run", "--", "sh", "-c", "exit 42").returncode == 42


def test_the_program_becomes_the_command(node: Node) -> None:
    with subprocess.Popen(node.argv("run", "--", "sleep", "60"), stderr=subprocess.DEVNULL) as process:
        name = Path(f"/proc/{process.pid}/comm")
        deadline = time.monotonic() + 20
        while name.read_text(encoding="utf-8").strip() != "sleep" and time.monotonic() < deadline:
            time.sleep(0.02)
        assert name.read_text(encoding="utf-8").strip() == "sleep"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM


def test_c05_what_is_inherited_is_replaced_or_dropped(node: Node) -> None:
    inherited = {"NCCL_IB_GID_INDEX": "010", "NCCL_IB_ADDR_RANGE": "10.0.0.0/8", "NCCL_DEBUG": "INFO"}
    environment = node.environment(**inherited)
    assert environment["NCCL_IB_GID_INDEX"] == "3"
    assert "NCCL_IB_ADDR_RANGE" not in environment
    assert environment["NCCL_DEBUG"] == "INFO", "what is not the fabric's stays"
    node.configure(gid_mode="none")
    assert "NCCL_IB_GID_INDEX" not in node.environment(**inherited)


def test_the_address_expands_only_where_asked(node: Node) -> None:
    command = [*SHOW_ENVIRONMENT, "--ip={VLLM_HOST_IP}", '{"a": 1}', "$HOME %h  x"]
    expanded = json.loads(node.call("run", "--expand", *command).stdout)[1][1:]
    assert expanded == ["--ip=192.168.100.1", '{"a": 1}', "$HOME %h  x"]
    assert json.loads(node.call("run", *command).stdout)[1][1] == "--ip={VLLM_HOST_IP}"


def test_c02_a_move_is_picked_up_at_the_next_start_and_remembered(node: Node) -> None:
    node.environment()
    first = node.state()["rails"][0]
    assert (first["gid_index"], first["moved"]) == (3, None)
    move_row(node, 3, 5)
    assert "used 3: moved since, the next start takes 5" in node.call("show").stdout
    done = node.call("run", "--", "true")
    assert "moved 3 → 5" in done.stderr
    moved = node.state()["rails"][0]
    assert (moved["gid_index"], moved["moved"]["from"], moved["moved"]["to"]) == (5, 3, 5)
    again = node.call("run", "--", "true")
    assert "moved" not in again.stderr, "it is news once"
    assert node.state()["rails"][0]["moved"] == moved["moved"]
    assert node.state()["rails"][0]["since"] == moved["since"]
    assert "moved 3 → 5" in node.call("show").stdout
    shown = json.loads(node.call("show", "--json").stdout)
    assert shown["last_start"]["rails"][0]["moved"]["to"] == 5


def test_a_failed_start_forgets_nothing(node: Node) -> None:
    node.environment()
    trees.spark(node.root, 1, carrier=0)
    assert node.call("run", "--", "true").returncode == 22
    state = node.state()
    assert state["errors"][0]["fault"] == "port-down"
    assert state["rails"][0]["gid_index"] == 3
    trees.spark(node.root, 1)
    move_row(node, 3, 6)
    node.environment()
    assert node.state()["rails"][0]["moved"]["from"] == 3


def no_device(node: Node) -> None:
    shutil.rmtree(node.root / "sys/class/infiniband")


def no_address(node: Node) -> None:
    trees.addresses(node.root, {})


def no_row(node: Node) -> None:
    for path in node.root.glob("sys/class/infiniband/*/ports/1/gid_attrs/types/3"):
        path.unlink()


def no_link(node: Node) -> None:
    trees.spark(node.root, 1, carrier=0)


def drifted(node: Node) -> None:
    port = node.root / "sys/class/infiniband/rocep1s0f1/ports/1"
    for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (port / name / "3").rename(port / name / "7")


def in_one_subnet(node: Node) -> None:
    trees.addresses(node.root, {"enp1s0f1np1": ["192.168.100.1/16"], "enP2p1s0f1np1": ["192.168.101.1/16"]})


@pytest.mark.parametrize(
    ("damage", "keys", "code"),
    [
        (no_device, {}, 21),
        (no_link, {}, 22),
        (no_address, {}, 23),
        (no_row, {}, 24),
        (drifted, {"gid_mode": "pin"}, 25),
        (drifted, {"pins": {"index": 3}}, 26),
        (in_one_subnet, {}, 27),
        (no_link, {"wait_s": 0.2}, 28),
        (no_device, {"wait_s": 30}, 21),
        (None, {"subnets": ["10.0.0.1/24"]}, 20),
        (None, {"wait": 3}, 20),
        (None, {"mode": "many"}, 20),
        (None, {"wait_s": -1}, 20),
        (None, {"pins": []}, 20),
    ],
)
def test_exit_codes(node: Node, damage: Any, keys: dict[str, Any], code: int) -> None:
    if damage:
        damage(node)
    node.configure(**keys)
    done = node.call("run", "--", "echo", "started")
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.startswith("fabric-env: ")


def test_usage_and_commands_that_do_not_run(node: Node) -> None:
    for arguments in (["run"], ["run", "--"], ["run", "x"], ["run", "--expnd", "--", "x"], ["show", "x"], []):
        assert node.call(*arguments).returncode == 2, arguments
    assert node.call("--help").returncode == 0
    assert node.call("run", "--", "no-such-program").returncode == 127
    assert node.call("run", "--", "/etc/passwd").returncode == 126
    (node.home / "fabric.json").unlink()
    assert node.call("run", "--", "true").returncode == 20
    (node.home / "fabric.json").write_text("{", encoding="utf-8")
    assert node.call("show").returncode == 20


def test_c11_it_waits_for_the_link_and_comes_up(node: Node) -> None:
    node.configure(wait_s=60)
    trees.spark(node.root, 1, carrier=0)
    with subprocess.Popen(node.argv("run", "--", "echo", "started"), stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr
        line = process.stderr.readline()
        assert "waiting, 60 s at most" in line
        assert "enp1s0f1np1 has no carrier" in line
        trees.spark(node.root, 1)
        healed = time.monotonic()
        output, _rest = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, "started\n")
        assert time.monotonic() - healed < 10
    assert node.state()["waited_s"] > 0


def test_it_says_anew_what_it_waits_for_when_that_changes(node: Node) -> None:
    node.configure(wait_s=60)
    trees.spark(node.root, 1, carrier=0)
    with subprocess.Popen(node.argv("run", "--", "true"), stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr
        first = process.stderr.readline()
        no_address(node)
        second = process.stderr.readline()
        process.kill()
    assert "no carrier" in first
    assert "enp1s0f1np1 no IPv4 address" in second


def test_one_node_needs_no_fabric(node: Node) -> None:
    no_device(node)
    node.configure(mode="single", subnets=[], addresses=["10.0.0.1"])
    environment = node.environment(NCCL_IB_HCA="=mlx5_0:1")
    assert environment["VLLM_HOST_IP"] == "10.0.0.1"
    assert environment["NCCL_IB_DISABLE"] == "1"
    assert environment["GLOO_SOCKET_IFNAME"] == "enP7s7"
    assert "NCCL_IB_HCA" not in environment
    node.configure(mode="single", subnets=[])
    assert node.environment()["VLLM_HOST_IP"] == "127.0.0.1"


def test_a_state_that_cannot_be_kept_does_not_stop_the_engine(node: Node) -> None:
    (node.home / "state").write_text("a file where the folder should be", encoding="utf-8")
    done = node.call("run", "--", "echo", "started")
    assert done.stdout == "started\n"
    assert "the status will not show this start" in done.stderr


def test_a_state_of_anything_is_replaced(node: Node) -> None:
    for text in ("", "[]", "{", '{"rails": [3]}'):
        (node.home / "state").mkdir(exist_ok=True)
        (node.home / "state/fabric.json").write_text(text, encoding="utf-8")
        node.environment()
        assert node.state()["rails"][0]["gid_index"] == 3
    assert os.listdir(node.home / "state") == ["fabric.json"]  # noqa: PTH208


def test_show_is_for_people_and_json_for_programs(node: Node) -> None:
    done = node.call("show")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    marked = [line.split() for line in lines if line.startswith(">")]
    assert [(words[1], words[4]) for words in marked] == [("roceP2p1s0f1", "3"), ("rocep1s0f1", "3")]
    assert "NCCL_IB_GID_INDEX=3" in lines
    data = json.loads(node.call("show", "--json").stdout)
    assert [rail["gid_index"] for rail in data["rails"]] == [3, 3]
    assert len(data["ports"]) == 2
    no_row(node)
    broken = node.call("show")
    assert broken.returncode == 24
    assert "error: " in broken.stdout
