# SPDX-License-Identifier: GPL-3.0-or-later
"""Staging from folders and addresses: whole and proved, or not there; gone on with, not begun anew."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _staging_sources
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_state import states
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import Store, load_manifest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import Meter
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job, JobError
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging import Wanted, stage
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging_order import check_source, make_source
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging_sources import Folder, Pushed, Urls, mount_type

from tests.unit.plugins.module_utils.model_trees import make_tree, shard_name

NAME = "Model"
SHARD = shard_name(2, 3)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def fetch(root: Path, source: Any, revision: str = "", reserve: int = 0, meter: Meter | None = None) -> dict[str, Any]:
    return stage(str(root), [(Wanted(NAME, "a/b", revision), source, "source")], reserve, Job(meter or Meter()))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "made", shards=3, length=5000)


def test_a_folder_is_copied_with_its_links_followed(tmp_path: Path, made: Path) -> None:
    (made / SHARD).rename(tmp_path / "blob")
    (made / SHARD).symlink_to(tmp_path / "blob")
    (made / ".cache").mkdir()
    (made / ".cache" / "note").write_text("x")
    found = fetch(tmp_path / "models", Folder(str(made)))
    assert found["changed"]
    expected = {name: data for name, data in content(made).items() if not name.startswith(".cache")}
    assert content(tmp_path / "models" / NAME) == expected
    assert not (tmp_path / "models" / NAME / SHARD).is_symlink()
    assert found["moved"] == sum(map(len, expected.values()))
    assert fetch(tmp_path / "models", Folder(str(made)))["changed"] is False


def test_a_copy_goes_on_where_it_was(tmp_path: Path, made: Path) -> None:
    root, job = tmp_path / "models", Job(Meter())

    class Cut(Meter):
        def phase(self, name: str, total: int, done: int = 0) -> None:
            super().phase(name, total, done)
            if name == "from source":
                store = Store(root, NAME)
                (store.incoming / SHARD).write_bytes((made / SHARD).read_bytes()[:9000])
                job.stop.set()

    job.meter = Cut()
    with pytest.raises(JobError, match="run again"):
        stage(str(root), [(Wanted(NAME, "", ""), Folder(str(made)), "source")], 0, job)
    assert not (root / NAME).exists()
    meter = Meter()
    before = Store(root, NAME).incoming / SHARD
    inode = before.stat().st_ino
    fetch(root, Folder(str(made)), meter=meter)
    assert (root / NAME / SHARD).stat().st_ino == inode
    assert content(root / NAME) == content(made)


def test_a_source_that_is_not_complete_is_refused_by_name(tmp_path: Path, made: Path) -> None:
    os.truncate(made / SHARD, 100)
    with pytest.raises(JobError, match=f"not a complete model.*{SHARD}"):
        fetch(tmp_path / "models", Folder(str(made)))
    assert not (tmp_path / "models" / NAME).exists()


def test_a_mount_that_is_not_mounted_is_told(tmp_path: Path, made: Path) -> None:
    with pytest.raises(JobError, match="mount it first"):
        fetch(tmp_path / "models", Folder(str(made), mounted=True))


MOUNTS = """/dev/vda / ext4 rw 0 0
host:/export /mnt/all\\040models nfs4 rw,vers=4.2 0 0
/dev/sdb /mnt/all\\040models/local xfs rw 0 0
tmpfs /srv tmpfs rw 0 0
//nas/share /srv cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/mnt/all models/Model", "nfs4"),
        ("/mnt/all models", "nfs4"),
        ("/mnt/all models/local/Model", "xfs"),
        ("/mnt/all", "ext4"),
        ("/srv/Model", "cifs"),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert mount_type(path, MOUNTS) == kind


def test_a_folder_on_a_network_file_system_is_a_source(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of mounts is data: it says that the folder lies on NFS."""
    table = tmp_path / "mounts"
    table.write_text(f"/dev/vda / ext4 rw 0 0\nhost:/export {made} nfs4 rw 0 0\n")
    monkeypatch.setattr(_staging_sources, "MOUNTS", table)
    fetch(tmp_path / "models", Folder(str(made), mounted=True))
    assert content(tmp_path / "models" / NAME) == content(made)


def test_too_little_disk_is_told_before_the_first_byte(tmp_path: Path, made: Path) -> None:
    """C73."""
    with pytest.raises(JobError, match="make room"):
        fetch(tmp_path / "models", Folder(str(made)), reserve=1 << 60)
    assert not list(Store(tmp_path / "models", NAME).incoming.iterdir())


def test_a_truncated_shard_of_the_head_is_brought_alone(tmp_path: Path, made: Path) -> None:
    """C70."""
    root = tmp_path / "models"
    fetch(root, Folder(str(made)))
    others = {p.name: p.stat().st_ino for p in (root / NAME).iterdir() if p.name != SHARD}
    os.truncate(root / NAME / SHARD, 77)
    state = states(str(root), [{"name": NAME}], {})[0]
    assert [(p["file"], p["kind"]) for p in state["problems"]] == [(SHARD, "truncated")]
    assert state["to_move"] == (made / SHARD).stat().st_size
    found = fetch(root, Folder(str(made)))
    assert found["moved"] == (made / SHARD).stat().st_size
    assert content(root / NAME) == content(made)
    assert {p.name: p.stat().st_ino for p in (root / NAME).iterdir() if p.name != SHARD} == others


def test_a_model_that_is_there_gets_a_manifest_and_is_not_touched(tmp_path: Path, made: Path) -> None:
    root = tmp_path / "models"
    root.mkdir()
    made.rename(root / NAME)
    before = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in (root / NAME).iterdir()}
    found = fetch(root, Pushed([]))
    assert found["moved"] == 0
    assert {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in (root / NAME).iterdir()} == before
    manifest = load_manifest(Store(root, NAME).manifest)
    assert manifest["source"] == "found here"
    assert {f["path"]: f["sha256"] for f in manifest["files"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in content(root / NAME).items()
    }
    assert states(str(root), [{"name": NAME}], {})[0]["unseen"] == []


def test_the_controller_is_told_which_files_lack(tmp_path: Path, made: Path) -> None:
    root = tmp_path / "models"
    files: list[dict[str, Any]] = [
        {"path": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in content(made).items()
    ]
    found = fetch(root, Pushed(files))
    assert found["awaiting"] == {NAME: [f["path"] for f in sorted(files, key=lambda f: (-f["size"], f["path"]))]}
    store = Store(root, NAME)
    for name, data in content(made).items():
        (store.incoming / name).write_bytes(data if name != SHARD else data[:-1] + b"?")
    # One came damaged: it is asked for again, alone.
    assert fetch(root, Pushed(files))["awaiting"] == {NAME: [SHARD]}
    (store.incoming / SHARD).write_bytes((made / SHARD).read_bytes())
    assert fetch(root, Pushed(files))["awaiting"] == {}
    assert content(root / NAME) == content(made)


class _Files(http.server.BaseHTTPRequestHandler):
    """Serves files of a folder with ranges; the first answer for each is cut in the middle."""

    root: Path
    sent: Counter[str]
    ranges = True

    def log_message(self, *_args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str((self.root / self.path.lstrip("/")).stat().st_size))
        self.end_headers()

    def do_GET(self) -> None:
        path = self.root / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data, begin = path.read_bytes(), 0
        if self.ranges and (match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))):
            begin = int(match[1])
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        first = self.sent[path.name] == 0
        part = data[begin : begin + len(data) // 2] if first and len(data) > 1000 else data[begin:]
        self.wfile.write(part)
        self.sent[path.name] += len(part)


@pytest.fixture
def server(made: Path) -> Iterator[tuple[str, Counter[str], type[_Files]]]:
    sent: Counter[str] = Counter()
    handler: type[_Files] = type("Handler", (_Files,), {"root": made, "sent": sent})
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_address[1]}", sent, handler
    running.shutdown()
    running.server_close()
    thread.join()


def entries(url: str, made: Path, sizes: bool = True) -> list[dict[str, Any]]:
    return [
        {"path": name, "url": f"{url}/{name}", "sha256": hashlib.sha256(data).hexdigest()}
        | ({"size": len(data)} if sizes else {})
        for name, data in content(made).items()
    ]


@pytest.mark.parametrize("sizes", [True, False])
def test_addresses_are_fetched_with_ranges_and_nothing_twice(
    tmp_path: Path, made: Path, server: tuple[str, Counter[str], type[_Files]], sizes: bool
) -> None:
    url, sent, _handler = server
    fetch(tmp_path / "models", Urls(entries(url, made, sizes)))
    assert content(tmp_path / "models" / NAME) == content(made)
    assert sent == {name: len(data) for name, data in content(made).items()}


def test_a_server_without_ranges_is_asked_from_the_beginning(
    tmp_path: Path, made: Path, server: tuple[str, Counter[str], type[_Files]]
) -> None:
    url, _sent, handler = server
    handler.ranges = False
    fetch(tmp_path / "models", Urls(entries(url, made)))
    assert content(tmp_path / "models" / NAME) == content(made)


def test_a_wrong_sum_and_a_missing_file_are_told(
    tmp_path: Path, made: Path, server: tuple[str, Counter[str], type[_Files]]
) -> None:
    wrong = entries(server[0], made)
    next(e for e in wrong if e["path"] == SHARD)["sha256"] = "0" * 64
    with pytest.raises(JobError, match=f"{SHARD}: not what its sum says"):
        fetch(tmp_path / "models", Urls(wrong))
    gone = entries(server[0], made)
    next(e for e in gone if e["path"] == SHARD)["url"] += ".gone"
    with pytest.raises(JobError, match="404"):
        fetch(tmp_path / "other", Urls(gone))
    assert not (tmp_path / "models" / NAME).exists()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({}, "type ''"),
        ({"type": "ftp"}, "expected one of controller, folder, host, hub, nfs, urls"),
        ({"type": "folder"}, "needs path"),
        ({"type": "host", "path": "/x"}, "needs address"),
        ({"type": "hub", "token": "x"}, "does not know token; it knows endpoint"),
        ({"type": "urls", "files": {}, "path": "/x"}, "does not know path"),
    ],
)
def test_what_is_wrong_with_a_source_is_said(source: dict[str, Any], said: str) -> None:
    with pytest.raises(JobError, match=said):
        check_source(source)


def test_a_source_is_made_for_each_model(tmp_path: Path) -> None:
    wanted = Wanted(NAME, "a/b", "")
    folder, name = make_source({"type": "folder", "path": "/data"}, wanted, str(tmp_path), tmp_path, "", "")
    assert (name, str(getattr(folder, "root"))) == (f"folder /data/{NAME}", f"/data/{NAME}")  # noqa: B009
    with pytest.raises(JobError, match="no list for Model"):
        make_source({"type": "urls", "files": {"Other": []}}, wanted, str(tmp_path), tmp_path, "", "")
    files = {NAME: [{"path": "x", "url": "y"}]}
    with pytest.raises(JobError, match="without sha256"):
        make_source({"type": "urls", "files": files}, wanted, str(tmp_path), tmp_path, "", "")
    with pytest.raises(JobError, match="runs in the engine's environment"):
        make_source({"type": "hub"}, wanted, str(tmp_path), tmp_path, "/no/python", "")
    with pytest.raises(JobError, match="names no repository"):
        make_source({"type": "hub"}, Wanted(NAME, "", ""), str(tmp_path), tmp_path, "/no/python", "")
    assert json.dumps(sorted(p.name for p in tmp_path.iterdir())) == '["hub_client.py"]'
