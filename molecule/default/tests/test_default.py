# SPDX-License-Identifier: GPL-3.0-or-later
"""Two nodes serve a real model: what each node holds, and what a client sees from outside."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._acceptance import Api, ApiError, window

from tests.bed import nodes

testinfra_hosts = ["ansible://sparks"]
PROMPTS = [
    {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
    for prompt in ("assistant:", "def f(x):", "Hello", "0123456789", "The quick brown fox")
    for tokens in (7, 40)
]


@pytest.fixture
def name(host: Any) -> str:
    """The node's own name."""
    return str(host.check_output("hostname"))


@pytest.fixture
def node(host: Any) -> Callable[[str], Any]:
    """Any node by name, also from a test of the other one."""
    inventory = host.backend.ansible_inventory
    return lambda wanted: host.get_host(f"ansible://{wanted}", ansible_inventory=inventory)


@pytest.fixture
def api(node: Callable[[str], Any]) -> Api:
    """The API as a client outside the nodes sees it."""
    head = node(nodes.HEAD)
    return nodes.api_of(head, head.backend.get_variables()["ansible_host"])


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
    assert nodes.out(
        host,
        "grep -c 'hasattr(self.quant_config, \"get_cache_scale\")' "
        f"{nodes.STATE}/current/lib/python3*/site-packages/vllm/model_executor/models/laguna_dflash.py",
    )


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


class TestFromOutside:
    """One client, one server: these run once, not on each node."""

    testinfra_hosts = [f"ansible://{nodes.HEAD}"]

    def test_a_true_answer(self, api: Api) -> None:
        answer = nodes.serving(api)
        assert answer["finish_reason"] == "stop"

    def test_no_answer_without_the_key(self, api: Api) -> None:
        with pytest.raises(ApiError, match="401"):
            nodes.serving(Api(api.base_url, "", 30))

    def test_nine_of_ten_drafts_are_accepted(self, api: Api) -> None:
        spun = window(api, nodes.MODEL, "assistant:", 300)
        assert spun["drafted"] > 200
        assert spun["acceptance"] > 0.9
        assert len(spun["by_position"]) == 6
        assert min(spun["by_position"]) > 0

    def test_the_same_tokens_as_without_the_draft(self, api: Api, host: Any) -> None:
        script = Path(nodes.ROOT / "tests/engine/tokens.py").read_text(encoding="utf-8")
        environment = "HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind TORCHDYNAMO_DISABLE=1"
        done = host.run(
            f"cd /tmp && printf %s {shlex.quote(script)} > tokens.py && printf %s {shlex.quote(json.dumps(PROMPTS))} | "
            f"{environment} {nodes.STATE}/current/bin/python tokens.py {nodes.MODELS}/Laguna-Chain-Tiny"
        )
        assert done.rc == 0, done.stderr[-3000:]
        plain = json.loads(done.stdout.strip().splitlines()[-1])
        drafted = []
        for item in PROMPTS:
            answer = api.complete({"model": nodes.MODEL, "temperature": 0, "return_token_ids": True, **item})
            drafted.append(answer["choices"][0]["token_ids"])
        assert drafted == plain

    def test_it_serves_again_after_a_reboot_of_both_nodes_without_a_play(
        self, api: Api, node: Callable[[str], Any]
    ) -> None:
        boots = {}
        for wanted in (nodes.HEAD, nodes.WORKER):
            boots[wanted] = nodes.out(node(wanted), "cat /proc/sys/kernel/random/boot_id; uptime -s")
            node(wanted).run("sudo systemctl reboot")
        nodes.wait_for("the API's silence after the reboot", 60, lambda: not answers(api))
        answer = nodes.wait_for("a true answer after the reboot of both nodes", 300, lambda: nodes.serving(api))
        assert answer["finish_reason"] == "stop"


def answers(api: Api) -> bool:
    """Whether the API gives a true answer now."""
    try:
        return bool(nodes.serving(Api(api.base_url, api.key, 5)))
    except ApiError:
        return False
