# SPDX-License-Identifier: GPL-3.0-or-later
"""Several models side by side: listed, verified, and only what is ours and unused is removed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_list import listing, prune, table, unused
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import STORE, Store
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_verify import judge
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import Meter
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job, JobError
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging import Wanted, git_sum, stage
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging_sources import Folder

from tests.unit.plugins.module_utils.model_trees import make_tree, shard_name

SHARD = shard_name(2, 3)


def staged(root: Path, name: str, revision: str = "") -> None:
    source = root.parent / "source" / name
    if not source.exists():
        make_tree(source, shards=3)
    stage(str(root), [(Wanted(name, "a/b", revision), Folder(str(source)), "folder")], 0, Job(Meter()))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "models"
    for name in ("Used", "Unused"):
        staged(root, name)
    make_tree(root / "Foreign", shards=3)
    incoming = Store(root, "Begun").incoming
    incoming.mkdir(parents=True)
    (incoming / "part").write_bytes(b"x" * 100)
    return root


def by_name(root: Path) -> dict[str, dict[str, Any]]:
    return {model["name"]: model for model in listing(str(root))}


def test_every_model_is_listed_with_its_state(root: Path) -> None:
    (root / "file").write_text("not a model")
    (root / "Unused" / SHARD).unlink()
    found = by_name(root)
    assert sorted(found) == ["Begun", "Foreign", "Unused", "Used"]
    assert found["Used"]["proved"]
    assert found["Foreign"]["complete"]
    assert not found["Foreign"]["proved"]
    assert not found["Unused"]["complete"]
    assert found["Begun"]["arriving"] == 100
    assert [name for name, model in found.items() if model["staged"]] == ["Begun", "Unused", "Used"]
    lines = table({"n1": list(found.values()), "n2": []}, {"Used": ["card"]})
    assert lines[0].split() == ["model", "size", "n1", "n2", "revision", "cards"]
    assert "incomplete (1)" in next(line for line in lines if line.startswith("Unused"))
    assert next(line for line in lines if line.startswith("Used")).split()[-1] == "card"


def test_only_what_is_ours_and_unused_is_removed(root: Path) -> None:
    assert unused(listing(str(root)), ["Used"]) == ["Begun", "Unused"]
    kept = {str(p.relative_to(root)): p.read_bytes() for p in (root / "Used").rglob("*") if p.is_file()}
    prune(str(root), ["Begun", "Unused"])
    assert sorted(by_name(root)) == ["Foreign", "Used"]
    assert {str(p.relative_to(root)): p.read_bytes() for p in (root / "Used").rglob("*") if p.is_file()} == kept
    assert not (root / STORE / "Unused").exists()
    assert not (root / STORE / ".trash").exists()


def test_a_link_to_a_model_is_removed_and_not_what_it_leads_to(root: Path, tmp_path: Path) -> None:
    shutil.move(root / "Unused", tmp_path / "elsewhere")
    (root / "Unused").symlink_to(tmp_path / "elsewhere")
    prune(str(root), ["Unused"])
    assert not (root / "Unused").is_symlink()
    assert (tmp_path / "elsewhere" / SHARD).exists()


def flip(path: Path) -> None:
    before = path.stat()
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_flipped_bit_is_found_by_the_deep_check_alone(root: Path) -> None:
    """C72."""
    flip(root / "Used" / SHARD)
    assert judge(str(root / "Used"), None, False, Job(Meter()))["complete"]
    found = judge(str(root / "Used"), None, True, Job(Meter()))
    assert [(p["file"], p["kind"]) for p in found["problems"]] == [(SHARD, "wrong_hash")]
    assert by_name(root)["Used"]["proved"] is False


def test_a_deep_check_goes_on_where_it_was_cut(root: Path) -> None:
    job = Job(Meter())
    store = Store(root, "Used")
    asked: list[int] = []

    class Cut(Meter):
        def add(self, count: int) -> None:
            asked.append(count)
            if len(asked) == 3:
                job.stop.set()

    job.meter = Cut()
    with pytest.raises(JobError, match="run again to go on"):
        judge(str(root / "Used"), None, True, job)
    assert (store.home / "deep.json").exists()
    meter = Meter()
    assert judge(str(root / "Used"), None, True, Job(meter))["complete"]
    assert not (store.home / "deep.json").exists()
    # The files that were hashed before the cut counted as done from the start of the second run.
    assert len(asked) < len(list((root / "Used").iterdir())) + 3
    judge(str(root / "Used"), None, True, Job(meter))
    assert meter.snapshot()["done"] == sum(p.stat().st_size for p in (root / "Used").iterdir())


def test_the_hub_s_own_notes_are_enough_for_a_deep_check(tmp_path: Path) -> None:
    folder = make_tree(tmp_path / "plain", shards=3)
    notes = folder / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    for path in [p for p in folder.iterdir() if p.is_file()]:
        data = path.read_bytes()
        large = path.suffix == ".safetensors"
        etag = hashlib.sha256(data).hexdigest() if large else git_sum(data).removeprefix("git:")
        (notes / f"{path.name}.metadata").write_text(f"{'0' * 40}\n{etag}\n1.0\n")
    assert judge(str(folder), None, True, Job(Meter()))["complete"]
    flip(folder / SHARD)
    flip(folder / "config.json")
    found = judge(str(folder), None, True, Job(Meter()))
    assert {p["file"] for p in found["problems"] if p["kind"] == "wrong_hash"} == {SHARD, "config.json"}
    assert "the hub's notes" in found["problems"][-1]["expected"]


def test_a_hub_cache_names_its_blobs_by_their_sum(tmp_path: Path) -> None:
    made = make_tree(tmp_path / "made", shards=3)
    snapshot = tmp_path / "snapshots" / "x"
    snapshot.mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    for path in made.iterdir():
        blob = tmp_path / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copy(path, blob)
        (snapshot / path.name).symlink_to(blob)
    assert judge(str(snapshot), None, True, Job(Meter()))["complete"]
    flip((snapshot / SHARD).resolve())
    assert judge(str(snapshot), None, True, Job(Meter()))["problems"][0]["file"] == SHARD


def test_without_any_sum_a_deep_check_says_so(tmp_path: Path) -> None:
    folder = make_tree(tmp_path / "plain", shards=3)
    with pytest.raises(JobError, match="no manifest and no notes"):
        judge(str(folder), None, True, Job(Meter()))


def test_a_manifest_that_cannot_be_relied_on_is_none(root: Path) -> None:
    manifest = Store(root, "Used").manifest
    known = json.loads(manifest.read_text())
    for change in ({"version": 2}, {"files": [{"path": "../x", "size": 1, "sha256": "0"}]}, {"files": "x"}):
        manifest.write_text(json.dumps(known | change))
        assert by_name(root)["Used"]["proved"] is False
