# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may take from an offer, and what is refused before anything moves. Real rsync daemons over loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_pull import Source
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_serve import Offer, config
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import Store
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import JobError

from tests.unit.plugins.module_utils.mirror_nodes import (
    NAME,
    SECRET,
    content,
    free_port,
    make_head,
    offering,
    order_for,
    place,
    take,
)

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
HEAD, PEER = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def head(tmp_path: Path) -> tuple[Path, dict[str, Any], int]:
    return tmp_path / "head", make_head(tmp_path / "head"), free_port()


def from_head(port: int) -> list[Source]:
    return [Source("head", [HEAD], port)]


def test_only_the_peers_with_the_password_read_and_nobody_writes(
    tmp_path: Path, head: tuple[Path, dict[str, Any], int]
) -> None:
    root, manifest, port = head
    peer = tmp_path / "peer"
    with offering(root, HEAD, port, [PEER]), pytest.raises(JobError, match="does not offer Model"):
        take(order_for(peer, manifest, from_head(port)))
    with offering(root, HEAD, port, [HEAD], secret="another"), pytest.raises(JobError, match="auth failed"):
        take(order_for(peer, manifest, from_head(port)))
    (tmp_path / "password").write_text(SECRET)
    (tmp_path / "password").chmod(0o600)
    with offering(root, HEAD, port, [HEAD]):
        url = f"rsync://mirror@{HEAD}:{port}/"
        options = [f"--password-file={tmp_path / 'password'}"]
        done = subprocess.run(["rsync", *options, __file__, f"{url}{NAME}/"], check=False, capture_output=True)
        assert done.returncode != 0
        assert b"read only" in done.stderr
        listed = subprocess.run(["rsync", *options, url], check=True, capture_output=True)
        assert listed.stdout == b""
        escape = subprocess.run(["rsync", "-r", *options, f"{url}{NAME}/../"], check=False, capture_output=True)
        assert b"seen.json" not in escape.stdout


def test_a_port_that_is_taken_is_told_before_anything_starts(
    tmp_path: Path, head: tuple[Path, dict[str, Any], int]
) -> None:
    root, _manifest, port = head
    make_head(tmp_path / "other")
    with (
        offering(root, HEAD, port, [HEAD]),
        pytest.raises(JobError, match=f"{HEAD}:{port} cannot be bound"),
        offering(tmp_path / "other", HEAD, port, [HEAD]),
    ):
        pass


def test_a_disk_that_is_too_small_is_told_before_the_first_byte(
    tmp_path: Path, head: tuple[Path, dict[str, Any], int]
) -> None:
    """C73."""
    root, manifest, port = head
    with offering(root, HEAD, port, [HEAD]), pytest.raises(JobError, match="make room"):
        take(order_for(tmp_path / "peer", manifest, from_head(port), reserve=1 << 60))
    assert not list(Store(tmp_path / "peer", NAME).incoming.iterdir())


def test_a_folder_with_odd_signs_is_quoted_for_the_daemon(tmp_path: Path) -> None:
    offer = Offer(f"{tmp_path}/100%", [NAME], [HEAD], 1, [PEER], "x", tmp_path)
    assert f"path = {tmp_path}/100%%/{NAME}" in config(offer)
    with pytest.raises(JobError, match="cannot offer"):
        config(Offer(f"{tmp_path}/a\nuid = 0", [NAME], [HEAD], 1, [PEER], "x", tmp_path))


def test_over_a_remote_shell_that_opens_one_folder_for_reading(
    tmp_path: Path, head: tuple[Path, dict[str, Any], int]
) -> None:
    """With rsync's own restricted shell, as the keys of the role fabric_ssh have it."""
    root, manifest, _port = head
    shell = tmp_path / "shell"
    drop = 'while [ "${1#-}" != "$1" ]; do shift; [ "$1" = x ] && shift; done; shift'
    shell.write_text(f'#!/bin/sh\n{drop}\nSSH_ORIGINAL_COMMAND="$*" exec rrsync -ro {root}\n')
    shell.chmod(0o755)
    source = [Source("head", [HEAD], 0)]
    found = take(order_for(tmp_path / "peer", manifest, source, shell=f"{shell} -F x"))
    assert found["moved"] == sum(item["size"] for item in manifest["files"])
    assert place(tmp_path / "peer", manifest)
    assert content(tmp_path / "peer") == content(root)
    os.truncate(Store(tmp_path / "peer", NAME).tree / "model-00002.safetensors", 1000)
    again = take(order_for(tmp_path / "peer", manifest, source, shell=f"{shell} -F x"))
    assert again["moved"] == (root / NAME / "model-00002.safetensors").stat().st_size
