# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of the variant `tiny` on the nodes of a bed: install, look, compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.bed import nodes, plays
from tests.engine import tiny

NODES = (nodes.HEAD, nodes.WORKER)
# Everything of a release, and the part of it that must be the same on all nodes.
LOCAL = "( -name RECORD -o -name uv_cache.json -o -name manifest.json -o -name release.json -o -name generated.zip )"
ALL = "find . -type f -not -path './patches/*' -not -name '*.pyc'"
SUM = "-print0 | sort -z | xargs -0 sha256sum | sha256sum"


class Bed:
    """The nodes, and plays on them."""

    def __init__(self, host: Any, folder: Path, seeds: Path) -> None:
        self.inventory = host.backend.ansible_inventory
        self.hosts = {name: host.get_host(f"ansible://{name}", ansible_inventory=self.inventory) for name in NODES}
        self.folder, self.seeds = folder, [str(seeds)]

    def on_all(self, command: str) -> dict[str, str]:
        """What a command prints on each node."""
        return {name: nodes.out(host, command) for name, host in self.hosts.items()}

    def arguments(self, number: int, **more: Any) -> list[str]:
        return ["-e", tiny.variables(tiny.lock(self.folder, number), engine_wheel_seeds=self.seeds, **more)]

    def run(self, number: int, *further: str, book: str = "playbooks/engine.yml", **more: Any) -> plays.Outcome:
        return plays.run(book, *self.arguments(number, **more), *further, inventory=self.inventory)

    def install(self, number: int, **more: Any) -> None:
        done = self.run(number, **more)
        assert not done.failed, done.said()
        assert self.current() == {self.name(number)}

    def name(self, number: int) -> str:
        return tiny.release_of(tiny.lock(self.folder, number))

    def current(self) -> set[str]:
        """Names of the releases that are current on the nodes."""
        return set(self.on_all(f"basename $(readlink {nodes.STATE}/current)").values())

    def book(self, roles: list[dict[str, Any]], tasks: list[dict[str, Any]] | None = None) -> str:
        """A playbook of one play on all nodes."""
        path = self.folder / "play.yml"
        head = {"name": "Play", "hosts": "sparks", "gather_facts": False, "any_errors_fatal": True}
        path.write_text(json.dumps([{**head, "roles": roles, "tasks": tasks or []}]), encoding="utf-8")
        return str(path)

    def sums(self, name: str) -> dict[str, str]:
        """One sum of everything in a release, on each node."""
        return self.on_all(f"cd {nodes.STATE}/releases/{name} && {ALL} {SUM}")

    def equal(self, name: str) -> bool:
        """Whether a release is the same on all nodes."""
        local = LOCAL.replace("(", "\\(").replace(")", "\\)")
        return len(set(self.on_all(f"cd {nodes.STATE}/releases/{name} && {ALL} -not {local} {SUM}").values())) == 1
