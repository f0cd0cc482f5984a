#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes that an installation fetches from outside, counted by the server that gives them, for beds of 2 and 4 nodes.

The head fetches, as on a real site; the server listens on the bed's own network and stands for the internet. One
transfer is cut in the middle. Needs root, as the bed does. Exits with 1 where the number of nodes changes the bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_fetch, _engine_lock  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_tags import Target  # noqa: E402

from tests.bed import plays  # noqa: E402
from tests.engine import tiny  # noqa: E402
from tests.unit.plugins import engine_makers as makers  # noqa: E402

NET = "10.123.77"
SEED = "/home/spark/seed"
UV_LOCK = ROOT / "roles/engine/files/locks/pylock.uv.toml"


def bed(folder: Path, nodes: int) -> dict[str, str]:
    """The environment that names a bed."""
    return {"BED_DIR": str(folder), "BED_PREFIX": "trf", "BED_NODES": str(nodes), "BED_NET": NET,
            "BED_FABRIC": "192.168.177"}  # fmt: skip


def uv_wheel(folder: Path) -> Path:
    """uv's wheel, which the bed cannot fetch: the head gets it by hand, as on a site without a network."""
    (wheel,) = _engine_lock.select(_engine_lock.read([UV_LOCK]), Target("3.13", "x86_64", (2, 41)))
    _engine_fetch.fetch([wheel], folder)
    return folder / wheel.filename


def count(nodes: int, folder: Path, locks: Path, index: makers.Index) -> int:
    """Bytes that one installation on so many nodes takes from the server."""
    os.environ.update(bed(folder / f"bed-{nodes}", nodes))
    tool = str(ROOT / "testbed/bed")
    subprocess.run([tool, "up"], check=True)
    try:
        subprocess.run([tool, "ssh", "1", "mkdir", "-p", SEED], check=True)
        with uv_wheel(folder / "uv").open("rb") as wheel:
            name = Path(wheel.name).name
            subprocess.run([tool, "ssh", "1", f"cat > {SEED}/{name}"], stdin=wheel, check=True)
        index.sent, index.cut_after = 0, 500_000
        card = {"nodes.max": nodes, "parallel.pipeline_parallel_size": nodes // 2}
        extra = json.loads(tiny.variables(locks, engine_wheel_seeds=[SEED], model_card_overrides=card))
        extra["engine_wheelhouse"] = "head"
        done = plays.run(
            "playbooks/engine.yml", "-e", json.dumps(extra), inventory=str(ROOT / "inventories/local/bed.py")
        )
        if done.failed:
            raise SystemExit(done.said())
        return index.sent
    finally:
        subprocess.run([tool, "down"], check=True)


def main() -> int:
    """Count for both sizes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny.lock(folder, 1)
        found = {}
        with makers.serve(folder, f"{NET}.1", bind="0.0.0.0") as index:
            locks = tiny.lock(folder, 1, base=index.url)
            size = sum(path.stat().st_size for path in (folder / "wheels/1").glob("*.whl"))
            for nodes in (2, 4):
                found[nodes] = count(nodes, folder, locks, index)
    for nodes, sent in found.items():
        print(f"{nodes} nodes: {sent} bytes from outside, for wheels of {size} bytes")
    return 0 if set(found.values()) == {size} else 1


if __name__ == "__main__":
    sys.exit(main())
