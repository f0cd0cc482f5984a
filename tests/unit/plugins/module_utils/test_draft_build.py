# SPDX-License-Identifier: GPL-3.0-or-later
"""What the draft builder accepts and what it asks for; the quantizing itself is tested in the engine's environment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._draft_build import (
    QUANTIZE,
    Order,
    build,
    ignore_entries,
    is_current,
    require_source,
)
from ansible_collections.dgx_spark.vllm.plugins.module_utils._draft_quant import KEEP, ignored, modules
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import Store
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import Meter
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job, JobError
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging import Wanted, stage
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging_sources import Pushed

from testbed.models import make_tiny

SOURCE = f"{make_tiny.TARGET}-DFlash-BF16"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tiny.make(tmp_path / "models")


def order(root: Path, **change: Any) -> Order:
    wanted: dict[str, Any] = {"source": SOURCE, "name": "Built", "python": "/no/python", "program": "x"}
    return Order(root=str(root), **(wanted | change))


def test_ignore_holds_expressions_for_exactly_what_is_not_quantized() -> None:
    config = make_tiny.draft_config(False)
    entries = ignore_entries(config, QUANTIZE)
    assert entries == ["lm_head", r"re:.*\.self_attn\.qkv_proj$", r"re:.*\.self_attn\.g_proj$"]
    for name in modules(config):
        assert ignored(name, entries) == name.endswith(KEEP)


def test_what_is_not_chosen_is_ignored() -> None:
    config = make_tiny.draft_config(False)
    entries = ignore_entries(config, [r".*\.mlp\.up_proj"])
    assert not ignored("layers.1.mlp.up_proj", entries)
    for name in ("fc", "layers.0.mlp.gate_proj", "layers.1.self_attn.o_proj", "layers.0.self_attn.qkv_proj"):
        assert ignored(name, entries)


def test_the_vendor_s_draft_is_accepted(root: Path) -> None:
    assert require_source(order(root))["num_hidden_layers"] == 2


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (make_tiny.TARGET, "a DFlash architecture"),
        (make_tiny.TARGET_DRAFT, "weights that are not quantized"),
        ("nothing", "no such folder"),
    ],
)
def test_other_sources_are_refused(root: Path, source: str, said: str) -> None:
    with pytest.raises(JobError, match=said):
        require_source(order(root, source=source))


def test_a_source_with_other_names_is_refused(root: Path) -> None:
    path = root / SOURCE / "model.safetensors"
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"aux_hidden_norms.1", b"aux_hidden_narms.1"))
    with pytest.raises(JobError, match=r"without aux_hidden_norms\.1\.weight"):
        require_source(order(root))


@pytest.mark.parametrize(
    ("quantize", "said"),
    [
        ([r".*\.self_attn\..*"], "must stay in BF16"),
        ([r".*qkv_proj"], "must stay in BF16"),
        (["("], "draft_builder_quantize"),
    ],
)
def test_expressions_that_would_break_the_draft_are_refused(root: Path, quantize: list[str], said: str) -> None:
    with pytest.raises(JobError, match=said):
        require_source(order(root, quantize=quantize))


def test_without_the_engine_nothing_is_left_behind(root: Path) -> None:
    with pytest.raises(JobError, match="works in the engine's environment"):
        build(order(root), Job(Meter()))
    assert not (root / "Built").exists()


def test_a_program_that_fails_is_heard(root: Path) -> None:
    program = root / "program"
    program.write_text("import json, sys\nprint(json.dumps({'error': 'fc.weight: too large'}))\nsys.exit(1)\n")
    with pytest.raises(JobError, match=r"fc\.weight: too large"):
        build(order(root, python=shutil.which("python3"), program=str(program)), Job(Meter()))
    program.write_text("raise RuntimeError('no torch here')\n")
    with pytest.raises(JobError, match="no torch here"):
        build(order(root, python=shutil.which("python3"), program=str(program)), Job(Meter()))
    assert not (root / "Built").exists()


def test_a_built_draft_that_is_damaged_is_built_again_and_not_fetched(root: Path) -> None:
    def stage_built() -> dict[str, Any]:
        return stage(str(root), [(Wanted(make_tiny.TARGET_DRAFT, "a/b", ""), Pushed([]), "hub a/b")], 0, Job(Meter()))

    stage_built()
    manifest = Store(root, make_tiny.TARGET_DRAFT).manifest
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"source": f"built from {SOURCE}"}))
    assert not stage_built()["changed"]
    (root / make_tiny.TARGET_DRAFT / "config.json").write_text("{}")
    with pytest.raises(
        JobError, match=rf"config\.json: absent or damaged; it was built from {SOURCE} .*build_draft\.yml"
    ):
        stage_built()


def test_a_draft_of_another_source_or_other_options_is_not_current(root: Path) -> None:
    assert not is_current(order(root))
    shutil.copytree(root / make_tiny.TARGET_DRAFT, root / "Built")
    (root / "Built" / "provenance.json").write_text(json.dumps({"options": {}, "source_manifest": ""}))
    assert not is_current(order(root))
    assert not Store(root, "Built").manifest.exists()
