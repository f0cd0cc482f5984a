"""The units as Ansible renders them, taken apart again: what must be in them is, and what must not cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
UNITS = ROOT / "roles/units"
HEAD, WORKER = "spark-01", "spark-02"
MODEL = "/home/spark/models/a b%c$d"
PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(UNITS / "defaults/main.yml"), str(UNITS / "vars/main.yml")],
        "vars": {"deployment_card": "c", "deployment_card_overrides": {}, "inventory_hostname": "{{ me }}"},
        "tasks": [
            {
                "name": "Render",
                "ansible.builtin.copy": {
                    "dest": "{{ out }}",
                    "mode": "0600",
                    "content": "{{ (_units_unit_files + _units_config_files) | to_json }}",
                },
            }
        ],
    }
]  # fmt: skip


def card(executor: str) -> dict[str, Any]:
    argv = [MODEL, "--served-model-name", "m"]
    meet = ["--master-addr", "{VLLM_HEAD_IP}", "--master-port", "29501"]
    ranks = [[*argv, "--nnodes", "2", "--node-rank", str(rank), *meet] for rank in (0, 1)]
    return {
        "name": "c", "executor": executor, "served_name": "m", "devices": 2, "serve_argv": argv,
        "start_sha256": "5f2b", "rank_argv": ranks if executor == "mp" else [], "models": [{"path": MODEL}],
        "environment": {"all": {"A": "x y"}, "head": {"H": "1"}, "worker": {"W": "1"}},
        "ray_argv": {"head": ["--num-gpus=1"], "worker": ["--num-gpus=1"]},
        "caps": {"head": 1000, "worker": 2000, "driver": 3000},
        "expect": {"ready_s": 600, "prompt": "p"}, "required": {"memory_bytes": 5},
    }  # fmt: skip


def deployment(me: str, executor: str, scope: str) -> dict[str, Any]:
    addresses = {HEAD: ["192.168.100.1"], WORKER: ["192.168.100.2"]}
    home = "/home/spark"
    return {
        "head": HEAD, "hosts": [HEAD, WORKER], "rank": [HEAD, WORKER].index(me), "is_head": me == HEAD, "user": "spark",
        "uid": 1000, "gid": 1000, "home": home, "root": f"{home}/.local/share/dgx-spark-vllm",
        "config": f"{home}/.config/dgx-spark-vllm", "scope": scope,
        "unit_dir": f"{home}/.config/systemd/user" if scope == "user" else "/etc/systemd/system",
        "address": addresses[me][0], "head_address": addresses[HEAD][0], "addresses": addresses,
        "rails": [{"subnet": "192.168.100.0/24", "netdev": "enp1s0f1np1"}],
        "fabric": {"subnets": ["192.168.100.0/24"], "gid_mode": "auto", "pins": {}},
        "api": {"host": "0.0.0.0", "port": 8000}, "card": card(executor), "release": f"{home}/releases/r1",
    }  # fmt: skip


def render(folder: Path, me: str, executor: str = "ray", scope: str = "user") -> dict[str, str]:
    """File name to content, of one node."""
    (folder / "templates").symlink_to(UNITS / "templates")
    (folder / "play.yml").write_text(yaml.safe_dump(PLAY))
    (folder / "hosts").write_text("localhost ansible_host=localhost\n")
    out = folder / "out.json"
    values = {"deployment": deployment(me, executor, scope), "me": me, "out": str(out)}
    (folder / "vars.json").write_text(json.dumps(values))
    program = Path(sys.executable).parent / "ansible-playbook"
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_LOCALHOST_WARNING": "False"}
    done = subprocess.run(
        [str(program), "-i", "localhost,", "-e", f"@{folder / 'vars.json'}", "-e", f"inventory_hostname={me}",
         str(folder / "play.yml")],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {Path(entry["path"]).name: entry["content"] for entry in json.loads(out.read_text())}


def keys(unit: str) -> dict[str, list[str]]:
    """The values of each key."""
    found: dict[str, list[str]] = {}
    for line in unit.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    return {me: render(tmp_path_factory.mktemp("render"), me) for me in (HEAD, WORKER)}


def test_each_node_has_its_units(pair: dict[str, dict[str, str]]) -> None:
    units = {me: sorted(name for name in files if name.endswith(".service")) for me, files in pair.items()}
    assert units[HEAD] == ["vllm-guard.service", "vllm-halt.service", "vllm-ray-head.service", "vllm-serve.service",
                           "vllm-watchdog.service"]  # fmt: skip
    assert units[WORKER] == ["vllm-guard.service", "vllm-ray-worker.service"]


@pytest.mark.parametrize(("me", "name"), [(HEAD, "vllm-ray-head.service"), (WORKER, "vllm-ray-worker.service")])
def test_ray_units(pair: dict[str, dict[str, str]], me: str, name: str) -> None:
    """C21, C22, C23, C26: one source of the address, on every node, memory monitor off, never without --block."""
    unit = keys(pair[me][name])
    start = unit["ExecStart"][0]
    assert "/bin/fabric-env run --expand -- " in start
    assert "/bin/ray start --block" in start
    assert '"--node-ip-address={VLLM_HOST_IP}"' in start
    assert "--disable-usage-stats" in start
    for option in (
        "node-manager-port",
        "object-manager-port",
        "runtime-env-agent-port",
        "metrics-export-port",
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "min-worker-port",
        "max-worker-port",
    ):
        assert f"--{option}=" in start  # fmt: skip
    environment = unit["Environment"]
    assert "RAY_memory_monitor_refresh_ms=0" in environment
    assert "RAY_AUTH_MODE=token" in environment
    assert not any(entry.startswith(("VLLM_HOST_IP", "NCCL_", "GLOO_")) for entry in environment)
    assert unit["Restart"] == ["always"]
    assert unit["LimitMEMLOCK"] == ["infinity"]
    assert unit["MemorySwapMax"] == ["0"]
    assert unit["MemoryMax"] == ["1000" if me == HEAD else "2000"]
    assert unit["StartLimitIntervalSec"] == ["0"]
    assert ("--head" in start) == (me == HEAD)
    assert ("--include-dashboard=false" in start) == (me == HEAD)


def test_the_server(pair: dict[str, dict[str, str]]) -> None:
    unit = keys(pair[HEAD]["vllm-serve.service"])
    assert '"/home/spark/models/a b%%c$$d"' in unit["ExecStart"][0]
    assert unit["OnFailure"] == ["vllm-halt.service"]
    assert unit["RestartMode"] == ["direct"]
    assert unit["StartLimitBurst"] == ["10"]
    assert unit["MemoryMax"] == ["3000"]
    assert unit["ExecStartPost"] == ["/home/spark/.local/share/dgx-spark-vllm/bin/vllm-node after vllm-serve.service"]
    assert "--middleware dgx_spark_vllm._door.Door" in unit["ExecStart"][0]
    assert "H=1" in unit["Environment"]
    assert "W=1" not in unit["Environment"]
    assert int(unit["TimeoutStartSec"][0]) > 600


def test_no_unit_names_a_key_or_reads_one(pair: dict[str, dict[str, str]]) -> None:
    for files in pair.values():
        for name, text in files.items():
            if name.endswith(".service"):
                assert "api.env" not in text, name
                assert "API_KEY" not in text, name
    assert "VLLM_API_KEY" in pair[HEAD]["ray_non_carry_over_env_vars.json"]


def test_the_inputs_are_files_that_the_roles_write(pair: dict[str, dict[str, str]]) -> None:
    """A cause for a restart that nothing writes would never be one."""
    for files in pair.values():
        for name, text in files.items():
            for path in keys(text).get("Input", []) if name.endswith(".service") else []:
                written = Path(path).name in files or Path(path).name == "ray.token"
                assert written or "/lib/dgx_spark_vllm" in path, (name, path)


def test_configuration_is_json_and_names_both_nodes(pair: dict[str, dict[str, str]]) -> None:
    node = json.loads(pair[WORKER]["node.json"])
    assert node["hosts"] == {HEAD: "192.168.100.1", WORKER: "192.168.100.2"}
    assert node["is_head"] is False
    assert node["devices"] == 2
    fabric = json.loads(pair[WORKER]["fabric.json"])
    assert fabric["addresses"] == ["192.168.100.2"]
    assert fabric["peers"] == {HEAD: ["192.168.100.1"]}
    assert json.loads(pair[HEAD]["door.json"])["/metrics"] == ["127.0.0.0/8", "::1/128"]


def test_without_ray(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    (tmp_path / "w").mkdir()
    head, worker = render(tmp_path / "h", HEAD, "mp"), render(tmp_path / "w", WORKER, "mp", "system")
    assert sorted(n for n in worker if n.endswith(".service")) == ["vllm-guard.service", "vllm-rank.service"]
    assert "--node-rank 0 --master-addr 192.168.100.1" in head["vllm-serve.service"]
    rank = keys(worker["vllm-rank.service"])
    assert "--node-rank 1 --master-addr 192.168.100.1" in rank["ExecStart"][0]
    assert "Door" not in rank["ExecStart"][0]
    assert rank["User"] == ["spark"]
    assert rank["WantedBy"] == ["multi-user.target"]
    assert json.loads(worker["node.json"])["meet"] == ["192.168.100.1", 29501]
    assert "vllm-ray" not in head["vllm-serve.service"]
