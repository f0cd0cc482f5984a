# SPDX-License-Identifier: GPL-3.0-or-later
"""C61: the page cache of model files is given back without root, and what is said of it is true."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _pagecache
from ansible_collections.dgx_spark.vllm.plugins.module_utils._pagecache import cached_bytes, drop_tree, files_of

SIZE = 3 << 20


@pytest.fixture
def folder() -> Iterator[Path]:
    """On a disk: a tmpfs has no cache to drop. One for each test: they run side by side."""
    above = Path(os.environ.get("PAGECACHE_TEST_DIR") or Path(__file__).resolve().parents[4] / ".pytest_cache")
    above.mkdir(parents=True, exist_ok=True)
    base = Path(tempfile.mkdtemp(prefix="pages-", dir=above))
    (base / "a.safetensors").write_bytes(os.urandom(SIZE))
    (base / "b.safetensors").write_bytes(os.urandom(SIZE))
    yield base
    shutil.rmtree(base)


def test_what_was_written_is_cached_and_then_dropped(folder: Path) -> None:
    assert cached_bytes(folder / "a.safetensors") == SIZE
    found = drop_tree(folder)
    assert found == {"files": 2, "bytes": 2 * SIZE, "cached_before": 2 * SIZE, "cached_after": 0, "skipped": 0}
    assert cached_bytes(folder / "a.safetensors") == 0
    assert drop_tree(folder)["cached_before"] == 0


def test_both_ways_of_counting_agree(folder: Path) -> None:
    drop_tree(folder)
    descriptor = os.open(folder / "a.safetensors", os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(descriptor, 10 * mmap.PAGESIZE, 0)
        counted = _pagecache._mincore(descriptor, SIZE)
        asked = _pagecache._cachestat(descriptor)
    finally:
        os.close(descriptor)
    assert counted == 10 * mmap.PAGESIZE
    assert asked in (None, counted)


def test_mapped_pages_stay_and_are_reported(folder: Path) -> None:
    path = folder / "a.safetensors"
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as held:
        held[0], held[SIZE - 1]
        found = drop_tree(path)
    assert 0 < found["cached_after"] <= found["cached_before"]


def test_files_are_counted_once_and_odd_ones_passed_over(tmp_path: Path) -> None:
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "x").write_bytes(b"x")
    os.link(tmp_path / "tree" / "sub" / "x", tmp_path / "tree" / "same")
    (tmp_path / "blob").write_bytes(b"y")
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "blob")
    (tmp_path / "tree" / "nowhere").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "tree" / "pipe")
    found = [path.name for path in files_of([tmp_path / "tree", tmp_path / "blob", tmp_path / "absent"])]
    assert len(found) == 2
    assert "link" in found
    assert drop_tree(tmp_path / "absent")["files"] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_on_an_overlay_the_pages_below_are_counted_and_dropped(folder: Path) -> None:
    parts = {name: folder / name for name in ("lower", "upper", "work", "merged")}
    for part in parts.values():
        part.mkdir(parents=True)
    options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
    subprocess.run(["mount", "-t", "overlay", "test", "-o", options, str(parts["merged"])], check=True)
    try:
        (parts["merged"] / "c.safetensors").write_bytes(os.urandom(SIZE))
        assert drop_tree(parts["merged"])["cached_before"] == SIZE
        assert cached_bytes(parts["upper"] / "c.safetensors") == 0
    finally:
        subprocess.run(["umount", str(parts["merged"])], check=True)
