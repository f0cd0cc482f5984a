# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The draft builder on a node with the real engine; what it built is what all tests after these find on the nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._draft_check import check_draft

from tests.bed import nodes, plays

testinfra_hosts = [f"ansible://{nodes.HEAD}"]
DRAFT = "Laguna-Chain-Tiny-DFlash-W4A16"
SOURCE = "Laguna-Chain-Tiny-DFlash-BF16"
FOLDER = f"{nodes.MODELS}/{DRAFT}"
KNOWN = f"{nodes.MODELS}/.dgx-spark-vllm"
BUILD = ("playbooks/build_draft.yml", "-e", f"draft_builder_source={SOURCE}")
PYTHON = f"{nodes.STATE}/current/bin/python"


def read(host: Any, path: str) -> dict[str, Any]:
    """A JSON file of a node."""
    found: dict[str, Any] = json.loads(nodes.out(host, f"cat {path}"))
    return found


def test_the_draft_is_built_on_the_head_and_is_on_every_node(host: Any, node: Callable[[str], Any]) -> None:
    inventory = host.backend.ansible_inventory
    built = plays.run(*BUILD, inventory=inventory)
    assert not built.failed, built.said()
    assert built.names(nodes.HEAD, "Build the draft"), built.said()
    provenance = read(host, f"{FOLDER}/provenance.json")
    assert len(provenance["errors"]) == 9
    assert max(provenance["errors"].values()) <= provenance["bound"]
    source = nodes.out(host, f"sha256sum {nodes.MODELS}/{SOURCE}/model.safetensors").split()[0]
    assert provenance["source_files"] == {"model.safetensors": source}
    for name in (nodes.HEAD, nodes.WORKER):
        made = nodes.out(node(name), f"sha256sum {FOLDER}/model.safetensors").split()[0]
        assert provenance["files"] == {"model.safetensors": made}


def test_a_second_run_builds_nothing(host: Any) -> None:
    again = plays.run(*BUILD, inventory=host.backend.ansible_inventory)
    assert not again.failed, again.said()
    assert again.changed == {nodes.HEAD: [], nodes.WORKER: []}


def test_prune_removes_what_the_build_started_from_and_no_card_uses(host: Any) -> None:
    prune = ("playbooks/models.yml", "-e", "models_action=prune", "-e", "models_prune_confirm=true")
    pruned = plays.run(*prune, inventory=host.backend.ansible_inventory)
    assert not pruned.failed, pruned.said()
    left = nodes.out(host, f"ls {nodes.MODELS} {KNOWN}")
    assert SOURCE not in left
    assert left.count(DRAFT) == 2


@pytest.fixture
def literal(host: Any) -> Iterator[None]:
    """On the head a draft that somebody put there, with names in `ignore` as a person would write them."""
    nodes.out(host, f"rm -rf /tmp/right && mkdir /tmp/right && mv {KNOWN}/{DRAFT} /tmp/right/known")
    nodes.out(host, f"cp -p {FOLDER}/config.json /tmp/right/")
    config = read(host, "/tmp/right/config.json")
    names = [f"layers.{layer}.self_attn.qkv_proj" for layer in range(config["num_hidden_layers"])]
    config["quantization_config"]["ignore"] = ["lm_head", r"re:.*\.self_attn\.g_proj$", *names]
    assert check_draft(config, {}, {})
    nodes.out(host, f"cat > {FOLDER}/config.json <<'END'\n{json.dumps(config)}\nEND")
    yield
    nodes.out(host, f"cp -p /tmp/right/config.json {FOLDER}/ && mv /tmp/right/known {KNOWN}/{DRAFT}")


@pytest.mark.usefixtures("literal")
def test_literal_names_are_refused_before_anything_starts_with_the_cause_that_vllm_would_give(host: Any) -> None:
    """C82."""
    before = nodes.unit_property(host, "vllm-serve.service", "InvocationID")
    refused = plays.run("site.yml", inventory=host.backend.ansible_inventory)
    assert refused.failed
    assert "literal name 'layers.0.self_attn.qkv_proj' in ignore" in refused.output
    assert refused.changed == {nodes.HEAD: [], nodes.WORKER: []}
    assert nodes.unit_property(host, "vllm-serve.service", "InvocationID") == before
    nodes.put(host, nodes.ROOT / "tests/engine/loader.py", "/tmp/loader.py")
    done = host.run(f"cd /tmp && VLLM_NO_USAGE_STATS=1 {PYTHON} loader.py {nodes.MODELS}/Laguna-Chain-Tiny {FOLDER}")
    verdict = json.loads(done.stdout.strip().splitlines()[-1])
    assert verdict == {"error": "KeyError", "message": "'layers.0.self_attn.qkv_proj.weight'"}
