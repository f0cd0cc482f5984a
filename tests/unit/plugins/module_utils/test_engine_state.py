# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a node: what there is, what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_state as state
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _release

from tests.unit.plugins.engine_makers import dump
from tests.unit.plugins.engine_releases import SITE, built

NAME = "0123456789abcdef"


def test_an_empty_node(tmp_path: Path) -> None:
    found = state.look_at(str(tmp_path / "none"), NAME)
    assert (found["state"], found["current"], found["releases"]) == ("absent", "", [])
    assert found["glibc"][0] == 2
    assert found["disk_free"] > 0
    assert not (tmp_path / "none").exists()


def test_from_partial_to_ready_to_damaged(tmp_path: Path) -> None:
    (tmp_path / "releases" / NAME / "bin").mkdir(parents=True)
    assert state.look_at(str(tmp_path), NAME)["state"] == "partial"
    (tmp_path / "releases" / NAME / "manifest.json").write_text("{")
    assert state.look_at(str(tmp_path), NAME)["state"] == "partial"
    other = tmp_path / "other"
    release = built(other, NAME)
    _release.make_current(other, str(release))
    found = state.look_at(str(other), NAME)
    assert (found["state"], found["current"], found["releases"]) == ("ready", str(release), [NAME])
    assert found["packages"]["torch"]["version"] == "2.11.0"
    assert found["versions"]["ray"] == "2.56.0"
    files = state.look_at(str(other), NAME, files_of=["ray"])["files"]
    assert f"{SITE}/ray/core.py" in files
    assert not any(path.endswith(".pyc") or "/torch/" in path for path in files)
    (release / SITE / "ray/core.py").write_text("edited\n")
    found = state.look_at(str(other), NAME)
    assert (found["state"], found["difference_count"]) == ("damaged", 1)


def test_the_nccl_that_a_rank_loads_is_known(tmp_path: Path) -> None:
    path = f"{SITE}/nvidia/nccl/lib/libnccl.so.2"
    manifest = {"files": {path: [1, 1, "ab", "nvidia-nccl-cu13"], "x": [1, 1, "cd", ""]}}
    assert state.nccl_of(manifest, {"nccl": "2.28.9"}) == {"version": "2.28.9", "path": path, "sha256": "ab"}
    assert state.nccl_of({"files": {}}, {}) == {}


@pytest.mark.parametrize("folder", ["usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/local/lib"])
def test_what_the_distribution_lacks(tmp_path: Path, folder: str) -> None:
    wanted = {"libnuma.so.1": "libnuma1", "libavfilter.so.*": "ffmpeg", "libavdevice.so.*": "ffmpeg", "rsync": "rsync"}
    assert state.missing_packages(tmp_path, wanted) == ["ffmpeg", "libnuma1", "rsync"]
    for name in ("libnuma.so.1", "libavfilter.so.9.0"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text("")
    assert state.missing_packages(tmp_path, wanted) == ["ffmpeg", "rsync"]
    (tmp_path / folder / "libavdevice.so.61").write_text("")
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/rsync").write_text("")
    assert state.missing_packages(tmp_path, wanted) == []


def test_only_patches_that_changed_a_file_give_it_another_sum(tmp_path: Path) -> None:
    for name, verdict in (("a", "present"), ("b", "not_needed"), ("c", "applied")):
        dump(tmp_path / "patches" / f"{name}.json", {"verdict": verdict, "file": f"f{name}", "after_sha256": name})
    (tmp_path / "patches/broken.json").write_text("{")
    assert state.patched_files(state.patches_of(tmp_path)) == {"fa": "a", "fc": "c"}
