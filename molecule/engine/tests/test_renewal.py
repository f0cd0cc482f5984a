# SPDX-License-Identifier: GPL-3.0-or-later
"""The first lock is made on the head, kept on the controller, and renewed on purpose; wheels come over the fabric.

A web server on the bed's own network stands for the package indexes: it is all that the nodes can reach.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_fetch, _engine_lock
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_tags import Target

from tests.bed import nodes, plays
from tests.engine import tiny
from tests.unit.plugins import engine_makers as makers

testinfra_hosts = [f"ansible://{nodes.HEAD}"]
SEED = "/home/spark/seed"
UV_LOCK = nodes.ROOT / "roles/engine/files/locks/pylock.uv.toml"


class Site:
    """A package index, a folder of locks, and plays that use both."""

    def __init__(self, host: Any, folder: Path, index: makers.Index) -> None:
        self.inventory = host.backend.ansible_inventory
        self.folder, self.index, self.locks = folder, index, folder / "locks"
        self.host = host

    def publish(self, name: str, version: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> None:
        """Another version of a package on the index."""
        path = makers.wheel(self.folder / "www/files", name, version, files, requires)
        links = sorted(item.name.replace("+", "%2B") for item in path.parent.glob(f"{name}-*.whl"))
        makers.page(self.folder / "www/simple", name, [f"/files/{link}" for link in links])

    def run(self, book: str, **more: Any) -> plays.Outcome:
        row = {**tiny.ROW, "requirements": ["vllm", "ray", "torch"]}
        own = {
            "engine_variant": "tiny", "engine_variants_extra": {"tiny": row}, "engine_lock_dir": str(self.locks),
            "engine_wheelhouse": "head", "engine_index": f"{self.index.url}/simple", "engine_wheel_seeds": [SEED],
        }  # fmt: skip
        return plays.run(book, "-e", json.dumps({**own, **more}), inventory=self.inventory)

    def versions(self) -> dict[str, str]:
        packages = _engine_lock.read([self.locks / "pylock.tiny.toml"]).packages
        return {name: entry["version"] for name, entry in packages.items()}


@pytest.fixture(scope="module")
def site(host: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = _engine_lock.select(_engine_lock.read([UV_LOCK]), Target("3.13", "x86_64", (2, 41)))
    # The bed reaches no package index: the head gets uv by hand, as on a site without a network.
    _engine_fetch.fetch([wheel], folder / "uv")
    nodes.out(host, f"mkdir -p {SEED}")
    nodes.put(host, folder / "uv" / wheel.filename, f"{SEED}/")
    address = host.backend.get_variables()["ansible_host"].rpartition(".")[0] + ".1"
    (folder / "www").mkdir()
    with makers.serve(folder / "www", address) as index:
        made = Site(host, folder, index)
        vllm = {**makers.FILES["vllm"], "vllm/model_executor/models/laguna_dflash.py": tiny.LAGUNA}
        made.publish("vllm", makers.VERSIONS["vllm"], vllm)
        made.publish("torch", makers.VERSIONS["torch"], makers.FILES["torch"])
        made.publish("ray", makers.VERSIONS["ray"], makers.FILES["ray"])
        yield made


def test_the_first_install_resolves_on_the_head_and_keeps_the_lock(site: Site) -> None:
    # A transfer is cut in the middle, and goes on.
    site.index.cut_after = 100_000
    done = site.run("playbooks/engine.yml")
    assert not done.failed, done.said()
    assert site.versions() == {"vllm": "0.25.1+cpu", "torch": "2.11.0", "ray": "2.56.0"}
    name = tiny.release_of(site.locks)
    for node in (nodes.HEAD, nodes.WORKER):
        there = site.host.get_host(f"ansible://{node}", ansible_inventory=site.inventory)
        assert nodes.out(there, f"basename $(readlink {nodes.STATE}/current)") == name


def test_a_later_run_uses_exactly_that(site: Site) -> None:
    site.publish("ray", "2.57.0", makers.FILES["ray"])
    before, asked = (site.locks / "pylock.tiny.toml").read_bytes(), len(site.index.asked)
    done = site.run("playbooks/engine.yml")
    assert not done.failed, done.said()
    assert done.changed == {nodes.HEAD: [], nodes.WORKER: []}, done.said()
    assert (site.locks / "pylock.tiny.toml").read_bytes() == before
    assert len(site.index.asked) == asked


def test_a_lock_is_renewed_on_purpose_and_says_what_changes(site: Site) -> None:
    done = site.run("playbooks/lock.yml")
    assert not done.failed, done.said()
    assert "~ ray 2.56.0 -> 2.57.0" in done.output
    assert site.versions()["ray"] == "2.57.0"
    again = site.run("playbooks/lock.yml")
    assert "nothing: the lock is as it was" in again.output


def test_only_what_is_new_comes_from_outside(site: Site) -> None:
    sent = site.index.sent
    done = site.run("playbooks/engine.yml")
    assert not done.failed, done.said()
    new = (site.folder / "www/files/ray-2.57.0-py3-none-any.whl").stat().st_size
    assert site.index.sent - sent == new


def test_what_cannot_be_resolved_names_the_package_and_changes_nothing(site: Site) -> None:
    """C41 and C45."""
    before = (site.locks / "pylock.tiny.toml").read_bytes()
    row = {**tiny.ROW, "requirements": ["vllm==0.99", "torchcodec>=0.14"]}
    done = site.run("playbooks/lock.yml", engine_variants_extra={"tiny": row})
    assert done.failed
    assert "variant tiny cannot be resolved; a lock is there for engine_variant cpu" in done.output
    assert (site.locks / "pylock.tiny.toml").read_bytes() == before


def test_the_offer_of_the_head_has_ended(site: Site) -> None:
    listening = nodes.out(site.host, "ss -Hltnp | grep -c python || true")
    assert listening == "0"
