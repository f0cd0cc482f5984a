# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node has of its models: a draft that is here is judged with the rest, and one that goes away is not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_state import draft_errors, states
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import Store
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import Meter
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging import Wanted, stage
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging_sources import Pushed

from testbed.models import make_tiny
from tests.unit.plugins.module_utils.model_trees import make_tree

DFLASH = {"method": "dflash", "depth": 6, "trained_for": "BF16"}
DRAFT = make_tiny.TARGET_DRAFT


def wanted(revision: str = "") -> list[dict[str, Any]]:
    return [{"name": make_tiny.TARGET, "role": "target"}, {"name": DRAFT, "role": "draft", "revision": revision}]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The tiny models, the draft with literal names in `ignore`."""
    made = make_tiny.make(tmp_path / "models")
    path = made / DRAFT / "config.json"
    config = json.loads(path.read_text())
    names = [f"layers.{layer}.self_attn.{part}" for layer in (0, 1) for part in ("qkv_proj", "g_proj")]
    config["quantization_config"]["ignore"] = ["lm_head", *names]
    path.write_text(json.dumps(config))
    return made


def errors(root: Path, revision: str = "", speculative: dict[str, Any] | None = None) -> list[str]:
    found = states(str(root), wanted(revision), DFLASH if speculative is None else speculative)
    return [f"{e['host']} {e['subject']} {e['found']} {e['cure']}" for e in draft_errors("spark-01", found)]


def test_a_draft_that_vllm_cannot_load_is_found_where_it_lies(root: Path) -> None:
    """C82, from the files of a node: what the preflight reports."""
    found = errors(root)
    literal = [text for text in found if "literal name" in text]
    assert len(literal) == 4
    assert all(text.startswith(f"spark-01 {DRAFT}/config.json ") for text in found)
    assert any("'layers.0.self_attn.g_proj'" in text and r"re:.*\.self_attn\.g_proj$" in text for text in found)


def test_no_draft_and_no_speculation_are_no_fault(root: Path, tmp_path: Path) -> None:
    assert errors(tmp_path / "nothing") == []
    assert errors(root, speculative={"method": "", "depth": 0, "trained_for": ""}) == []
    assert errors(root, speculative={}) == []


def test_a_draft_of_another_revision_than_the_pinned_one_is_not_judged(root: Path) -> None:
    """It is replaced; its faults must not stand in the way of that."""
    stage(str(root), [(Wanted(DRAFT, "", ""), Pushed([]), "")], 0, Job(Meter()))
    store = Store(root, DRAFT)
    manifest = json.loads(store.manifest.read_text())
    store.manifest.write_text(json.dumps(manifest | {"revision": "a" * 40}))
    assert errors(root, "a" * 40)
    assert errors(root, "b" * 40) == []
    assert errors(root, "main")


def test_an_untouched_tree_of_24_shards_is_known_in_under_a_second(tmp_path: Path) -> None:
    """As many tensors as the reference has; its files were hashed before, so that not one of them is opened."""
    make_tree(tmp_path / "Large", shards=24, tensors=47 * 256 * 3 * 2 // 24, length=1)
    stage(str(tmp_path), [(Wanted("Large", "", ""), Pushed([]), "")], 0, Job(Meter()))
    began = time.process_time()
    state = states(str(tmp_path), [{"name": "Large", "role": "target"}], {})[0]
    took = time.process_time() - began
    assert state["complete"]
    assert state["unseen"] == []
    assert took < 0.5, took
