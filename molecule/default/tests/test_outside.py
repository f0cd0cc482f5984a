# SPDX-License-Identifier: GPL-3.0-or-later
"""What a client outside the two nodes sees."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._acceptance import Api, ApiError, window

from tests.bed import nodes, plays

testinfra_hosts = [f"ansible://{nodes.HEAD}"]
# When the first process of the node started.
BOOTED = "stat -c %Y /proc/1"
PROMPTS = [
    {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
    for prompt in ("assistant:", "def f(x):", "Hello", "0123456789", "The quick brown fox")
    for tokens in (7, 40)
]


def answers(api: Api) -> bool:
    """Whether the API gives a true answer now."""
    try:
        return bool(nodes.serving(Api(api.base_url, api.key, 5)))
    except ApiError:
        return False


def test_a_true_answer(api: Api) -> None:
    answer = nodes.serving(api)
    assert answer["finish_reason"] == "stop"


def test_no_answer_without_the_key(api: Api) -> None:
    with pytest.raises(ApiError, match="401"):
        nodes.serving(Api(api.base_url, "", 30))


def test_nine_of_ten_drafts_are_accepted(api: Api) -> None:
    spun = window(api, nodes.MODEL, "assistant:", 300)
    assert spun["drafted"] > 200
    assert spun["acceptance"] > 0.9
    assert len(spun["by_position"]) == 6
    assert min(spun["by_position"]) > 0


def test_the_same_tokens_as_without_the_draft(api: Api, host: Any) -> None:
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


def test_the_engines_own_figure_is_in_the_next_runs_budget(node: Callable[[str], Any]) -> None:
    head = node(nodes.HEAD)
    said = json.loads(nodes.out(head, f"cat {nodes.STATE}/state/measured.json"))
    log = "journalctl -q --user-unit=vllm-serve -o cat --no-pager"
    journal = nodes.out(head, f"{log} | grep -o 'KV cache size: .* tokens'")
    assert journal.splitlines()[-1] == f"KV cache size: {said['kv_tokens']:,.0f} tokens"
    shown = plays.run("playbooks/budget.yml", inventory=head.backend.ansible_inventory)
    assert not shown.failed, shown.said()
    assert re.search(rf"tokens in the KV pool +{said['kv_tokens']:,.0f} +the engine's log", shown.output)
    status = plays.run("playbooks/status.yml", inventory=head.backend.ansible_inventory)
    assert f"kv cache   {said['kv_tokens']:,.0f} tokens" in status.output


def test_it_serves_again_after_a_reboot_of_both_nodes_without_a_play(api: Api, node: Callable[[str], Any]) -> None:
    both = (nodes.HEAD, nodes.WORKER)
    boots = {wanted: nodes.out(node(wanted), BOOTED) for wanted in both}
    for wanted in both:
        # A moment later, so that the answer to this command comes before the connection ends.
        nodes.out(node(wanted), "sudo systemd-run --quiet --on-active=500ms systemctl reboot")
    nodes.wait_for("the API's silence after the reboot", 60, lambda: not answers(api))
    answer = nodes.wait_for("a true answer after the reboot of both nodes", 300, lambda: nodes.serving(api))
    assert answer["finish_reason"] == "stop"
    assert [wanted for wanted in both if nodes.out(node(wanted), BOOTED) == boots[wanted]] == []
