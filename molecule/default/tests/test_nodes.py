# SPDX-License-Identifier: GPL-3.0-or-later
"""What each of the two nodes holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.bed import nodes

testinfra_hosts = ["ansible://sparks"]
LOADER = f"{nodes.STATE}/current/lib/python3*/site-packages/vllm/model_executor/models/laguna_dflash.py"


def test_units_run_under_the_users_systemd_with_linger(host: Any, name: str) -> None:
    assert host.file("/var/lib/systemd/linger/spark").exists
    unit = nodes.ray_unit(name)
    assert nodes.unit_property(host, unit, "ActiveState") == "active"
    assert "/user@1000.service/" in nodes.unit_property(host, unit, "ControlGroup")
    journal = nodes.out(
        host,
        f"sudo journalctl --no-pager -o short _UID=1000 USER_UNIT={unit} | tail -5; "
        f"sudo journalctl --no-pager -o cat _COMM=systemd _UID=1000 | grep -c {unit} || true",
    )
    assert journal


def test_both_nodes_run_the_same_release_and_patch(host: Any, node: Callable[[str], Any]) -> None:
    link = f"readlink {nodes.STATE}/current"
    patched = (
        f"cd {nodes.STATE}/current/lib/python3*/site-packages && sha256sum vllm/model_executor/models/laguna_dflash.py"
    )
    for command in (link, patched):
        assert nodes.out(host, command) == nodes.out(node(nodes.HEAD), command)
    assert nodes.out(host, f"grep -c 'hasattr(self.quant_config, .get_cache_scale.)' {LOADER}") == "1"


def test_model_files_are_equal(host: Any, node: Callable[[str], Any]) -> None:
    command = f"cd {nodes.MODELS} && find . -name '*.safetensors*' -type f | sort | xargs sha256sum"
    listed = nodes.out(host, command)
    assert listed.count("safetensors") >= 4
    assert listed == nodes.out(node(nodes.HEAD), command)


def test_the_running_process_has_its_own_gid_index(host: Any, name: str) -> None:
    environment = nodes.environment_of(host, nodes.ray_unit(name))
    assert environment["NCCL_IB_GID_INDEX"] == {"spark-01": "3", "spark-02": "5"}[name]
    assert environment["NCCL_IB_HCA"].startswith("=rocep1s0f1")
    assert environment["GLOO_SOCKET_IFNAME"] == "enp1s0f1np1"
    assert environment["RAY_memory_monitor_refresh_ms"] == "0"
    assert "VLLM_API_KEY" not in environment


def test_secrets_are_readable_by_the_user_alone(host: Any, name: str) -> None:
    files = ["ray.token"] + (["api.env"] if name == nodes.HEAD else [])
    for file in files:
        assert host.file(f"{nodes.CONFIG}/{file}").mode == 0o600
