# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models made of links, as in the hub's cache, with real rsync of whatever version is here."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_pull import Source
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
HEAD = "127.0.0.1"


def link_to_blobs(root: Path, blobs: Path, manifest: dict[str, Any]) -> None:
    """A model made of links, as in the hub's cache."""
    for item in manifest["files"]:
        link = root / NAME / item["path"]
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blobs / NAME / item["path"], link.parent))


def test_links_of_a_hub_cache_arrive_as_files(tmp_path: Path) -> None:
    """C75."""
    port = free_port()
    manifest = make_head(tmp_path / "blobs")
    head = tmp_path / "head"
    link_to_blobs(head, tmp_path / "blobs", manifest)
    with offering(head, HEAD, port, [HEAD]):
        take(order_for(tmp_path / "peer", manifest, [Source("head", [HEAD], port)]))
    place(tmp_path / "peer", manifest)
    assert content(tmp_path / "peer") == content(tmp_path / "blobs")
    assert not any(path.is_symlink() for path in (tmp_path / "peer" / NAME).rglob("*"))
    assert not Store(head, NAME).offered.exists()
    assert all((head / NAME / item["path"]).is_symlink() for item in manifest["files"])


def test_links_to_another_file_system_arrive_or_are_named(tmp_path: Path) -> None:
    """A second name of the file cannot be made there; whether the link is followed is the daemon's."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as blobs:
        if Path(blobs).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("the folder for tests is on the file system of /dev/shm")
        port = free_port()
        manifest = make_head(Path(blobs))
        link_to_blobs(tmp_path / "head", Path(blobs), manifest)
        with offering(tmp_path / "head", HEAD, port, [HEAD]):
            fault = ""
            try:
                take(order_for(tmp_path / "peer", manifest, [Source("head", [HEAD], port)]))
            except JobError as error:
                fault = str(error)
        if fault:
            assert re.search(r"rsync from head: .*link.*; .*cp --dereference", fault), fault
        else:
            place(tmp_path / "peer", manifest)
            assert content(tmp_path / "peer") == content(Path(blobs))
