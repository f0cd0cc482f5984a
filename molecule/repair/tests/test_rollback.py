# SPDX-License-Identifier: GPL-3.0-or-later
"""Back to the release before and forward again, with a model serving: the API answers each time, on one release."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_lock

from tests.bed import nodes, plays

testinfra_hosts = [f"ansible://{nodes.HEAD}"]
NODES = (nodes.HEAD, nodes.WORKER)
LOCK = nodes.ROOT / "roles/engine/files/locks/pylock.cpu.toml"


class Site:
    """The nodes with their releases, and the API from outside."""

    def __init__(self, host: Any) -> None:
        self.inventory = host.backend.ansible_inventory
        self.hosts = {name: host.get_host(f"ansible://{name}", ansible_inventory=self.inventory) for name in NODES}
        self.address = host.backend.get_variables()["ansible_host"]

    def current(self) -> str:
        """The one release that all nodes are on."""
        (name,) = {nodes.out(host, f"basename $(readlink {nodes.STATE}/current)") for host in self.hosts.values()}
        return name

    def run(self, book: str) -> float:
        """Run a playbook until the API gives the true answer; returns the seconds that took."""
        began = time.monotonic()
        done = plays.run(book, inventory=self.inventory)
        assert not done.failed, done.said()
        nodes.wait_for("an answer", 60, lambda: nodes.serving(nodes.api_of(self.hosts[nodes.HEAD], self.address)))
        return time.monotonic() - began

    def running(self) -> set[str]:
        """Releases that processes of the engine's units were started from, on all nodes."""
        found = set()
        for name, host in self.hosts.items():
            for unit in (nodes.ray_unit(name), *(["vllm-serve.service"] if name == nodes.HEAD else [])):
                group = nodes.unit_property(host, unit, "ControlGroup")
                # A process may end while its command line is asked for.
                show = "tr '\\0' ' ' < /proc/$p/cmdline || true"
                paths = nodes.out(host, f"for p in $(cat /sys/fs/cgroup{group}/cgroup.procs); do {show}; done")
                found |= {part.partition("/")[0] for part in paths.split("/releases/")[1:]}
        return found


@pytest.fixture(scope="module")
def site(host: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With a second whole release that was current before: the same files, named after a lock with one more line."""
    made = Site(host)
    lock = tmp_path_factory.mktemp("lock") / LOCK.name
    lock.write_bytes(LOCK.read_bytes() + b"# another lock\n")
    python = nodes.out(host, "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'")
    name, here = _engine_lock.release_id(_engine_lock.read([lock]).sha256, "cpu", python), made.current()
    releases = f"{nodes.STATE}/releases"
    for there in made.hosts.values():
        nodes.out(there, f"cd {releases} && mkdir {name} && sudo mount --bind {here} {name}")
    switch = {"root": nodes.STATE, "unit_dir": "/home/spark/.config/systemd/user"}
    tasks = [
        {"name": "Switch", "dgx_spark.vllm.engine_switch": {**switch, "path": f"{releases}/{release}"}}
        for release in (name, here)
    ]
    book = Path(lock).with_name("switch.yml")
    book.write_text(json.dumps([{"name": "Switch", "hosts": "sparks", "gather_facts": False, "tasks": tasks}]))
    done = plays.run(str(book), inventory=made.inventory)
    assert not done.failed, done.said()
    yield made
    for there in made.hosts.values():
        nodes.out(there, f"cd {releases} && sudo umount -l {name} && rmdir {name}")


def test_back_and_forward_again_with_a_model_serving(site: Site) -> None:
    first = site.current()
    assert site.running() == {first}
    back = site.run("playbooks/rollback.yml")
    second = site.current()
    assert second != first
    assert site.running() == {second}
    forward = site.run("site.yml")
    assert site.current() == first
    assert site.running() == {first}
    print(f"back {back:.0f} s, forward {forward:.0f} s, until a completion came")
