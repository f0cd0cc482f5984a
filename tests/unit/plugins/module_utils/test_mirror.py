# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror with real rsync over loopback: cut, damaged, chained, refused; the bed does the same with real nodes."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _mirror_pull, _mirror_work
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_pull import Source
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_state import states
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import Store
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import JobError

from tests.unit.plugins.module_utils.mirror_nodes import (
    NAME,
    content,
    free_port,
    make_head,
    offering,
    order_for,
    place,
    take,
)

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
HEAD, PEER, OTHER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
SHARD = "model-00003.safetensors"


@pytest.fixture(autouse=True)
def _small_files_count_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the way of large files is gone with small ones."""
    monkeypatch.setattr(_mirror_work, "SMALL", 100_000)
    monkeypatch.setattr(_mirror_pull, "SMALL", 100_000)


@pytest.fixture
def head(tmp_path: Path) -> tuple[Path, dict[str, Any], int]:
    return tmp_path / "head", make_head(tmp_path / "head"), free_port()


def from_head(port: int) -> list[Source]:
    return [Source("head", [HEAD], port)]


def the_state(root: Path) -> dict[str, Any]:
    return states(str(root), [{"name": NAME, "role": "target"}], {})[0]


def test_a_model_arrives_whole_and_proved(tmp_path: Path, head: tuple[Path, dict[str, Any], int]) -> None:
    root, manifest, port = head
    with offering(root, HEAD, port, [HEAD]):
        found = take(order_for(tmp_path / "peer", manifest, from_head(port)))
    assert found["moved"] == sum(item["size"] for item in manifest["files"])
    assert not (tmp_path / "peer" / NAME).exists()
    assert place(tmp_path / "peer", manifest)
    assert content(tmp_path / "peer") == content(root)
    assert not place(tmp_path / "peer", manifest)
    assert Store(tmp_path / "peer", NAME).manifest.read_bytes() == Store(root, NAME).manifest.read_bytes()
    assert the_state(tmp_path / "peer")["unseen"] == []
    assert sorted(p.name for p in Store(tmp_path / "peer", NAME).home.iterdir()) == ["manifest.json", "seen.json"]


def test_a_second_pull_moves_nothing_and_reads_nothing(tmp_path: Path, head: tuple[Path, dict[str, Any], int]) -> None:
    root, manifest, port = head
    with offering(root, HEAD, port, [HEAD]):
        take(order_for(tmp_path / "peer", manifest, from_head(port)))
        place(tmp_path / "peer", manifest)
        found = take(order_for(tmp_path / "peer", manifest, from_head(port)))
    assert (found["moved"], found["looked_at"], found["mended"]) == (0, 0, [])


def test_cut_at_any_point_it_goes_on_there(tmp_path: Path, head: tuple[Path, dict[str, Any], int]) -> None:
    """C74: the bytes that the later calls bring are those that lacked."""
    root, manifest, port = head
    total = sum(item["size"] for item in manifest["files"])
    chance = random.Random(7)
    with offering(root, HEAD, port, [HEAD]):
        for number in range(6):
            peer = tmp_path / f"peer{number}"
            # Slowed down, so that the cut falls into the middle.
            order = order_for(peer, manifest, from_head(port), bandwidth=2_000_000)
            take(order, stop_at=chance.randrange(1, total))
            here = sum(p.stat().st_size for p in Store(peer, NAME).incoming.rglob("*") if p.is_file())
            found = take(order_for(peer, manifest, from_head(port)))
            assert found["moved"] <= total - here + 200_000
            place(peer, manifest)
            assert content(peer) == content(root)


def test_a_flipped_bit_is_found_and_that_file_alone_is_brought(
    tmp_path: Path, head: tuple[Path, dict[str, Any], int]
) -> None:
    """C72, with the time of the file as it was: only its content tells."""
    root, manifest, port = head
    peer = tmp_path / "peer"
    with offering(root, HEAD, port, [HEAD]):
        take(order_for(peer, manifest, from_head(port)))
        place(peer, manifest)
        victim = peer / NAME / SHARD
        flip(victim)
        # Known by the deep check; a pull then looks at this file only.
        forget(peer, SHARD)
        opened = victim.open("rb")
        inode = os.fstat(opened.fileno()).st_ino
        found = take(order_for(peer, manifest, from_head(port)))
        place(peer, manifest)
    assert found["mended"] == [f"{NAME}/{SHARD}"]
    assert found["moved"] == victim.stat().st_size
    assert content(peer) == content(root)
    # What an engine has open is the old file still.
    assert victim.stat().st_ino != inode
    assert opened.read() != victim.read_bytes()
    opened.close()


def flip(path: Path) -> None:
    """One bit, with size and time as they were."""
    before = path.stat()
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path.write_bytes(raw)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def forget(root: Path, file: str) -> None:
    seen = Store(root, NAME).seen
    known = json.loads(seen.read_text())
    del known[file]
    seen.write_text(json.dumps(known))


def test_a_damaged_piece_of_an_unfinished_file_is_mended(
    tmp_path: Path, head: tuple[Path, dict[str, Any], int]
) -> None:
    root, manifest, port = head
    peer = tmp_path / "peer"
    with offering(root, HEAD, port, [HEAD]):
        take(order_for(peer, manifest, from_head(port)))
        incoming = Store(peer, NAME).incoming / SHARD
        flip(incoming)
        os.truncate(incoming, incoming.stat().st_size - 1000)
        found = take(order_for(peer, manifest, from_head(port)))
        place(peer, manifest)
    assert found["mended"] == [f"{NAME}/{SHARD}"]
    assert content(peer) == content(root)


def test_a_file_that_is_wrong_on_the_head_is_said_to_be(tmp_path: Path, head: tuple[Path, dict[str, Any], int]) -> None:
    root, manifest, port = head
    flip(root / NAME / SHARD)
    with offering(root, HEAD, port, [HEAD]), pytest.raises(JobError, match=f"{SHARD}.*the file on head is damaged"):
        take(order_for(tmp_path / "peer", manifest, from_head(port)))


def test_a_hard_linked_or_linked_file_is_never_written(tmp_path: Path, head: tuple[Path, dict[str, Any], int]) -> None:
    root, manifest, port = head
    peer = tmp_path / "peer"
    store = Store(peer, NAME)
    with offering(root, HEAD, port, [HEAD]):
        take(order_for(peer, manifest, from_head(port)))
        half = store.incoming / "model-00001.safetensors"
        os.truncate(half, 100_000)
        os.link(half, tmp_path / "kept")
        before = (tmp_path / "kept").read_bytes()
        victim = store.incoming / SHARD
        victim.unlink(missing_ok=True)
        (tmp_path / "outside").write_bytes(b"mine")
        victim.symlink_to(tmp_path / "outside")
        take(order_for(peer, manifest, from_head(port)))
        place(peer, manifest)
    assert (tmp_path / "kept").read_bytes() == before
    assert (tmp_path / "outside").read_bytes() == b"mine"
    assert content(peer) == content(root)
    assert not any(path.is_symlink() for path in (peer / NAME).rglob("*"))


def test_a_chain_takes_what_the_node_before_has_so_far(tmp_path: Path, head: tuple[Path, dict[str, Any], int]) -> None:
    """Both run at once; the head sends its files once."""
    root, manifest, port = head
    first, second = tmp_path / "first", tmp_path / "second"
    results: dict[str, Any] = {}
    with offering(root, HEAD, port, [HEAD]) as offer, offering(first, PEER, port, [PEER, HEAD]):
        slow = order_for(first, manifest, from_head(port), bandwidth=1_500_000)
        chain = [Source("first", [PEER], port, chained=True), Source("head", [HEAD], port)]
        thread = threading.Thread(target=lambda: results.update(first=take(slow)))
        thread.start()
        results["second"] = take(order_for(second, manifest, chain))
        thread.join()
        del offer
    sent = (root / ".offer" / "rsyncd.log").read_text()
    assert results["first"]["moved"] == results["second"]["moved"]
    place(first, manifest)
    place(second, manifest)
    assert content(second) == content(first) == content(root)
    # Whatever the second one asked the head for, it was a small part.
    total = sum(item["size"] for item in manifest["files"])
    assert sum(bytes_sent(sent)) < 1.5 * total


def bytes_sent(log: str) -> list[int]:
    return [int(line.split("sent ")[1].split()[0].replace(",", "")) for line in log.splitlines() if "sent " in line]


def test_a_node_that_left_the_chain_is_passed_over(tmp_path: Path, head: tuple[Path, dict[str, Any], int]) -> None:
    root, manifest, port = head
    gone = Source("gone", [OTHER], free_port(), chained=True)
    with offering(root, HEAD, port, [HEAD]):
        found = take(order_for(tmp_path / "peer", manifest, [gone, *from_head(port)]))
    assert found["moved"] == sum(item["size"] for item in manifest["files"])


def test_a_head_that_comes_back_is_waited_for(tmp_path: Path, head: tuple[Path, dict[str, Any], int]) -> None:
    root, manifest, port = head
    results: dict[str, Any] = {}
    order = order_for(tmp_path / "peer", manifest, from_head(port), bandwidth=2_000_000)
    with offering(root, HEAD, port, [HEAD]):
        thread = threading.Thread(target=lambda: results.update(take(order)))
        thread.start()
        while not list(Store(tmp_path / "peer", NAME).incoming.rglob("model-*")):
            pass
    with offering(root, HEAD, port, [HEAD]):
        thread.join()
    assert results["moved"] > 0
    place(tmp_path / "peer", manifest)
    assert content(tmp_path / "peer") == content(root)


def test_nothing_for_too_long_is_an_error_with_the_last_words(
    tmp_path: Path, head: tuple[Path, dict[str, Any], int]
) -> None:
    _root, manifest, port = head
    with pytest.raises(JobError, match=r"nothing has arrived for .* s \(last: head: .*; run again to go on"):
        take(order_for(tmp_path / "peer", manifest, from_head(port), patience_s=1.0))


def test_what_an_older_manifest_left_is_not_used(tmp_path: Path, head: tuple[Path, dict[str, Any], int]) -> None:
    root, manifest, port = head
    peer = tmp_path / "peer"
    older = manifest | {"files": [*manifest["files"], {"path": "gone.txt", "size": 1, "sha256": "0"}]}
    with offering(root, HEAD, port, [HEAD]):
        take(order_for(peer, manifest, from_head(port)))
        place(peer, manifest)
        (peer / NAME / "gone.txt").write_text("x")
        (peer / NAME / "mine.txt").write_text("x")
        Store(peer, NAME).manifest.write_text(json.dumps(older))
        take(order_for(peer, manifest, from_head(port)))
        assert place(peer, manifest)
    names = set(content(peer))
    assert "gone.txt" not in names
    assert "mine.txt" in names


def test_nothing_unproved_is_put_in_place(tmp_path: Path, head: tuple[Path, dict[str, Any], int]) -> None:
    root, manifest, port = head
    peer = tmp_path / "peer"
    with offering(root, HEAD, port, [HEAD]):
        take(order_for(peer, manifest, from_head(port)))
    flip(Store(peer, NAME).incoming / SHARD)
    with (Store(peer, NAME).incoming / SHARD).open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(JobError, match="not proved"):
        place(peer, manifest)
    assert not (peer / NAME).exists()
