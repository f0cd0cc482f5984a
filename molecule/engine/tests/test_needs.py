# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine needs of its nodes is looked for as a unit would find it, and named before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bed import nodes, plays
from tests.engine import tiny
from tests.engine.releases import NODES, Bed

testinfra_hosts = [f"ansible://{nodes.HEAD}"]
# The needs of a variant for a GPU, of the packages that are small.
ROW = {**tiny.ROW, "driver_min": "580", "toolkit_min": "12.8", "toolkit_package": "cuda-toolkit-12-9"}


@pytest.fixture
def fixtures() -> Iterator[Path]:
    """What the worker's GPU and toolkit say; as it was afterwards."""
    folder = Path(os.environ["BED_DIR"]) / "fixtures" / nodes.WORKER
    kept = {path: path.read_text() for path in (folder / "cuda/nvcc.txt", folder / "gpu/fields")}
    yield folder
    for path, text in kept.items():
        path.write_text(text)


def edit(path: Path, before: str, after: str) -> None:
    """Replace a text that must be there."""
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def run(bed: Bed, **more: Any) -> plays.Outcome:
    there = bed.on_all(f"ls -A {nodes.STATE} 2>/dev/null || true")
    done = bed.run(1, engine_variants_extra={"tiny": {**ROW, **more}})
    if done.failed:
        assert bed.on_all(f"ls -A {nodes.STATE} 2>/dev/null || true") == there
    return done


def test_a_toolkit_that_is_too_old_and_drivers_that_differ(bed: Bed, fixtures: Path) -> None:
    """C44 is an error, C46 a warning with both; a driver that is too old is an error beside it."""
    edit(fixtures / "cuda/nvcc.txt", "12.9", "12.4")
    edit(fixtures / "gpu/fields", "580.95.05", "570.11")
    done = run(bed)
    assert done.failed
    for said in (
        nodes.WORKER,
        "12.4",
        "12.8 or newer",
        f"{nodes.HEAD}: 580.95.05",
        f"{nodes.WORKER}: 570.11",
        "580 or newer",
    ):
        assert said in done.output, said
    assert "this collection never does" in done.output


def test_a_compiler_that_only_a_login_shell_finds_does_not_count(bed: Bed) -> None:
    """C43."""
    worker = bed.hosts[nodes.WORKER]
    nodes.out(worker, "mkdir -p ~/bin && sudo mv /usr/local/cuda/bin/nvcc /home/spark/bin/nvcc")
    try:
        assert nodes.out(worker, "bash -lc 'command -v nvcc'") == "/home/spark/bin/nvcc"
        done = run(bed)
    finally:
        nodes.out(worker, "sudo mv /home/spark/bin/nvcc /usr/local/cuda/bin/nvcc")
    assert done.failed
    assert "as a unit finds nvcc" in done.output
    assert "engine_cuda_install: true" in done.output


def test_another_architecture_has_no_variant(bed: Bed) -> None:
    done = run(bed, architectures=["aarch64"])
    assert done.failed
    for name in NODES:
        assert name in done.output
    assert "choose another variant than tiny" in done.output
