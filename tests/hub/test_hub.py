# SPDX-License-Identifier: GPL-3.0-or-later
"""Staging with the real hub client against a server that speaks the hub's protocol: whole at the end, nothing twice.

HUB_PYTHON names another Python with huggingface_hub, as the engine's; without it the one of the tests is used.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import os
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _staging_hub_client
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree import check
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_state import states
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import Store, load_manifest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import Meter
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job, JobError
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging import Wanted, stage
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging_hub import Hub as Source

from tests.hub.hub_server import REPO, Hub, serving
from tests.unit.plugins.module_utils.model_trees import make_tree

ROOT = Path(__file__).resolve().parents[2]
NAME = "model"
SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as found:
        yield found


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """A model of three shards above the size from which the hub keeps files in its store."""
    folder = make_tree(tmp_path / "made", shards=3, tensors=2, length=100_000)
    (folder / "README.md").write_text("# A model\n")
    (folder / "original").mkdir()
    (folder / "original" / "weights.pth").write_bytes(b"x" * 1000)
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def fetch(tmp_path: Path, hub: Hub, revision: str = "", job: Job | None = None, **more: Any) -> dict[str, Any]:
    client = tmp_path / "client.py"
    client.write_text(inspect.getsource(_staging_hub_client))
    root = tmp_path / "models"
    python = os.environ.get("HUB_PYTHON") or sys.executable
    source = Source(REPO, revision, python, client, endpoint=hub.url, workers=2, **more)
    wanted = Wanted(NAME, REPO, revision)
    return stage(str(root), [(wanted, source, f"hub {REPO}")], 0, job or Job(Meter()))


def arrived(tmp_path: Path) -> dict[str, bytes]:
    folder = tmp_path / "models" / NAME
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def kept(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.startswith("original/")}


@pytest.mark.parametrize("variant", ["cpu", "cu130"])
def test_the_client_of_these_tests_is_the_engine_s(variant: str) -> None:
    lock = tomllib.loads((ROOT / f"roles/engine/files/locks/pylock.{variant}.toml").read_text(encoding="utf-8"))
    (version,) = {p["version"] for p in lock["packages"] if p["name"] == "huggingface-hub"}
    assert importlib.metadata.version("huggingface_hub") == version


def test_a_model_comes_whole_at_its_commit(tmp_path: Path, hub: Hub, files: dict[str, bytes]) -> None:
    commit = hub.publish(files)
    found = fetch(tmp_path, hub, commit)
    assert found["changed"]
    assert arrived(tmp_path) == kept(files)
    manifest = load_manifest(Store(tmp_path / "models", NAME).manifest)
    assert (manifest["repo"], manifest["revision"]) == (REPO, commit)
    assert {f["path"]: f["sha256"] for f in manifest["files"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in kept(files).items()
    }
    assert {name: hub.sent[name] for name in kept(files)} == {n: len(d) for n, d in kept(files).items()}
    assert hub.sent["original/weights.pth"] == 0


def test_a_second_run_asks_nothing(tmp_path: Path, hub: Hub, files: dict[str, bytes]) -> None:
    """Offline afterwards: the manifest says all."""
    commit = hub.publish(files)
    fetch(tmp_path, hub, commit)
    hub.asked.clear()
    assert not fetch(tmp_path, hub, commit)["changed"]
    assert not hub.asked
    state = states(str(tmp_path / "models"), [{"name": NAME, "role": "target"}], {})[0]
    assert state["complete"]
    assert state["unseen"] == []


def test_a_branch_that_moves_in_the_middle_gives_one_commit(tmp_path: Path, hub: Hub, files: dict[str, bytes]) -> None:
    first = hub.publish(files)
    newer = {name: data + b"\n" if name.endswith(".md") else data for name, data in files.items()}

    def move(kind: str, path: str) -> int:
        if kind in ("head", "store") and hub.main == first:
            hub.publish(newer)
        return len(path) * 0

    hub.fault = move
    fetch(tmp_path, hub, "main")
    assert hub.main != first
    assert arrived(tmp_path) == kept(files)
    assert load_manifest(Store(tmp_path / "models", NAME).manifest)["revision"] == first


def test_a_connection_cut_in_the_middle_goes_on_where_it_was(tmp_path: Path, hub: Hub) -> None:
    folder = make_tree(tmp_path / "larger", shards=2, tensors=1, length=16 << 20)
    files = {p.name: p.read_bytes() for p in folder.iterdir()}
    hub.publish(files)
    cuts: dict[str, int] = {}

    def cut(kind: str, path: str) -> int:
        cuts[path] = cuts.get(path, 0) + 1
        return -(24 << 20) if kind == "store" and cuts[path] == 1 else 0

    hub.fault = cut
    fetch(tmp_path, hub, "main")
    assert arrived(tmp_path) == files
    # Nothing twice, but for the ten megabytes at most that the client had in hand when it was cut.
    for name, data in files.items():
        assert hub.sent[name] <= len(data) + (10 << 20), name
        assert len(data) < 4000 or max(cuts[p] for p in cuts if p.endswith(hashlib.sha256(data).hexdigest())) == 2


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_busy_or_broken_for_a_while_is_asked_again(
    tmp_path: Path, hub: Hub, files: dict[str, bytes], status: int
) -> None:
    hub.publish(files)
    seen: dict[tuple[str, str], int] = {}

    def busy(kind: str, path: str) -> int:
        seen[kind, path] = seen.get((kind, path), 0) + 1
        return status if seen[kind, path] == 1 else 0

    hub.fault = busy
    fetch(tmp_path, hub, "main")
    assert arrived(tmp_path) == kept(files)
    for name, data in kept(files).items():
        assert hub.sent[name] == len(data), name


def test_a_run_that_was_stopped_is_taken_up_by_the_next(tmp_path: Path, hub: Hub, files: dict[str, bytes]) -> None:
    hub.publish(files)
    job = Job(Meter())

    def slow(kind: str, path: str) -> int:
        if kind == "store" and len(hub.asked["store"]) >= 2:
            job.stop.set()
            time.sleep(1.0)
        return len(path) * 0

    hub.fault = slow
    with pytest.raises(JobError, match="stopped"):
        fetch(tmp_path, hub, "main", job)
    assert not (tmp_path / "models" / NAME).exists()
    hub.fault = lambda _kind, _path: 0
    fetch(tmp_path, hub, "main")
    assert arrived(tmp_path) == kept(files)
    assert sum(hub.sent.values()) <= sum(map(len, kept(files).values())) + 2 * len(files[SHARD])


def test_a_store_that_gives_other_bytes_is_found_by_their_sum(
    tmp_path: Path, hub: Hub, files: dict[str, bytes]
) -> None:
    commit = hub.publish(files)
    listed = hub.commits[commit]
    true = listed[SHARD]
    wrong = bytes([true[-1] ^ 1])

    def swap(kind: str, path: str) -> int:
        # The listing is of the true file, the store gives another one of the same size.
        hub.commits[commit] = listed | {SHARD: true[:-1] + wrong} if kind != "api" else listed
        return len(path) * 0

    hub.fault = swap
    with pytest.raises(JobError, match=f"{SHARD}: not what its sum says"):
        fetch(tmp_path, hub, commit)
    assert not (tmp_path / "models" / NAME).exists()


def test_the_token_comes_from_its_file_alone(
    tmp_path: Path, hub: Hub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.publish(files)
    hub.token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", "hf_from_the_environment")
    with pytest.raises(JobError, match="the hub wants a token"):
        fetch(tmp_path, hub, "main")
    assert hub.tokens == {""}
    path = tmp_path / "token"
    path.write_text("hf_secret\n")
    path.chmod(0o644)
    with pytest.raises(JobError, match="can be read by others"):
        fetch(tmp_path, hub, "main", token_file=str(path))
    path.chmod(0o600)
    watched = CommandLines()
    with watched:
        fetch(tmp_path, hub, "main", token_file=str(path))
    assert arrived(tmp_path) == kept(files)
    assert watched.seen
    assert not any(b"hf_secret" in text for text in watched.seen)


class CommandLines(threading.Thread):
    """Arguments and environment of our children while something runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self.ended = threading.Event()

    def run(self) -> None:
        me = os.getpid()
        while not self.ended.wait(0.01):
            for child in Path(f"/proc/{me}/task").glob("*/children"):
                try:
                    for pid in child.read_text().split():
                        self.seen.add(Path(f"/proc/{pid}/cmdline").read_bytes())
                        self.seen.add(Path(f"/proc/{pid}/environ").read_bytes())
                except OSError:
                    continue

    def __enter__(self) -> CommandLines:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()


def test_what_is_not_there_is_said_with_a_cure(tmp_path: Path, hub: Hub, files: dict[str, bytes]) -> None:
    hub.publish(files)
    with pytest.raises(JobError, match="check repo and revision in the card"):
        fetch(tmp_path, hub, "0" * 40)
    hub.fault = lambda kind, _path: 403 if kind == "api" else 0
    with pytest.raises(JobError, match="accept the model's licence"):
        fetch(tmp_path, hub, "main")


def test_a_repository_that_is_not_complete_in_itself_is_not_put_in_place(
    tmp_path: Path, hub: Hub, files: dict[str, bytes]
) -> None:
    hub.publish({name: data for name, data in files.items() if name != SHARD})
    with pytest.raises(JobError, match=f"not complete.*{SHARD}"):
        fetch(tmp_path, hub, "main")
    assert not (tmp_path / "models" / NAME).exists()


def test_a_pinned_revision_replaces_an_older_one_and_fetches_what_changed(
    tmp_path: Path, hub: Hub, files: dict[str, bytes]
) -> None:
    fetch(tmp_path, hub, hub.publish(files))
    changed = files | {"README.md": b"# A newer model\n", "config.json": json.dumps({"model_type": "laguna"}).encode()}
    del changed["tokenizer.json"]
    hub.sent.clear()
    newer = hub.publish(changed)
    assert fetch(tmp_path, hub, newer)["changed"]
    assert arrived(tmp_path) == kept(changed)
    assert {name for name, count in hub.sent.items() if count} == {"README.md", "config.json"}
    assert load_manifest(Store(tmp_path / "models", NAME).manifest)["revision"] == newer


def test_a_damaged_file_is_fetched_again_alone(tmp_path: Path, hub: Hub, files: dict[str, bytes]) -> None:
    """C72 on the head."""
    commit = hub.publish(files)
    fetch(tmp_path, hub, commit)
    path = tmp_path / "models" / NAME / SHARD
    raw = bytearray(path.read_bytes())
    raw[5000] ^= 1
    path.write_bytes(raw)
    hub.sent.clear()
    assert fetch(tmp_path, hub, commit)["changed"]
    assert arrived(tmp_path) == kept(files)
    assert {name for name, count in hub.sent.items() if count} == {SHARD}
    assert check(tmp_path / "models" / NAME).complete
