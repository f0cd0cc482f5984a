# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes for mirror tests: folders and loopback addresses of this machine, with real rsync daemons between them."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_pull import Order, Source, pull
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_serve import Offer, greets, serve
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_work import commit
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import Store, encode, write_atomic
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import Meter
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job, JobError

NAME = "Model"
SECRET = "a password of this run"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def manifest_of(folder: Path, name: str = NAME) -> dict[str, Any]:
    """What the head would write of a folder."""
    files = [
        {
            "path": str(path.relative_to(folder)),
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    return {"version": 1, "name": name, "repo": "a/b", "revision": "", "source": "test", "files": files}


def make_head(root: Path, shards: int = 6, size: int = 200_000) -> dict[str, Any]:
    """A model of random bytes on the head, with its manifest."""
    folder = root / NAME
    (folder / "sub").mkdir(parents=True)
    for number in range(shards):
        (folder / f"model-{number:05d}.safetensors").write_bytes(os.urandom(size + number))
    (folder / "config.json").write_text('{"model_type": "laguna"}')
    (folder / "sub" / "name with [brackets] 100%*.txt").write_text("also")
    manifest = manifest_of(folder)
    write_atomic(Store(root, NAME).manifest, encode(manifest))
    return manifest


@contextmanager
def offering(root: Path, address: str, port: int, peers: Sequence[str], **change: Any) -> Iterator[Job]:
    """A node that offers its model."""
    job = Job(Meter())
    offer = Offer(str(root), [NAME], [address], port, peers, SECRET, root / ".offer")
    faults: list[BaseException] = []

    def run() -> None:
        try:
            serve(Offer(**{**offer.__dict__, **change}), job)
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 10
    while not greets(address, port) and not faults and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        if faults:
            raise faults[0]
        yield job
    finally:
        job.stop.set()
        thread.join()


def order_for(root: Path, manifest: Mapping[str, Any], sources: Sequence[Source], **change: Any) -> Order:
    root.mkdir(exist_ok=True)
    wanted = {"streams": 2, "patience_s": 20.0} | change
    return Order(str(root), {NAME: manifest}, sources, SECRET, root, **wanted)


def take(order: Order, stop_at: int | None = None) -> dict[str, Any]:
    """Pull; with `stop_at` it is cut once so many bytes are here."""
    job = Job(Meter())
    incoming = Store(order.root, NAME).incoming

    def cut() -> None:
        while not job.stop.is_set():
            here = sum(path.stat().st_size for path in incoming.rglob("*") if path.is_file())
            if stop_at is not None and here >= stop_at:
                job.stop.set()
            time.sleep(0.005)

    thread = threading.Thread(target=cut)
    if stop_at is not None:
        thread.start()
    try:
        return pull(order, job)
    except JobError:
        if stop_at is None or not job.stop.is_set():
            raise
        return {"cut": True}
    finally:
        job.stop.set()
        if stop_at is not None:
            thread.join()


def place(root: Path, manifest: Mapping[str, Any]) -> bool:
    return commit(Store(root, NAME), manifest)


def content(root: Path) -> dict[str, bytes]:
    folder = root / NAME
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
