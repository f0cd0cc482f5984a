# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What belongs into a wheelhouse: the wheels of the locks for one kind of node, uv's wheel, and the lists uv reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from . import _engine_lock, _engine_wheels
from ._engine_lock import Wheel
from ._engine_tags import Target
from ._release import write_atomic

REQUIREMENTS = "requirements.txt"
LIST = "wheels.json"


class House(NamedTuple):
    """The wheels to install, uv's own wheel, and the contents of those that are built from sources."""

    wheels: list[Wheel]
    uv: Wheel
    built: dict[str, bytes]

    def listing(self) -> dict[str, Any]:
        """The same as plain values, for another machine."""
        return {"wheels": [list(wheel) for wheel in self.wheels], "uv": list(self.uv)}


def contents(locks: Sequence[Path], uv_lock: Path, sources: Path, target: Target) -> House:
    """What a wheelhouse for a target holds; LockError where a lock does not serve the target."""
    lock = _engine_lock.read(locks)
    wheels = _engine_lock.select(lock, target, locks[0].name)
    (uv,) = _engine_lock.select(_engine_lock.read([uv_lock]), target, uv_lock.name)
    wanted = {wheel.filename for wheel in wheels if not wheel.url}
    built = dict(_engine_wheels.build(path) for path in sorted(sources.iterdir()) if path.is_dir()) if wanted else {}
    return House(wheels, uv, {name: content for name, content in built.items() if name in wanted})


def listed(listing: Mapping[str, Any]) -> tuple[list[Wheel], Wheel]:
    """The wheels of a listing, and uv's."""
    return [Wheel(*wheel) for wheel in listing["wheels"]], Wheel(*listing["uv"])


def mirrored(wheel: Wheel, base: str) -> Wheel:
    """The same wheel at another node's address."""
    return wheel._replace(url=f"{base}/{quote(wheel.filename)}")


def write_lists(wheels: Sequence[Wheel], uv: Wheel, dest: Path) -> tuple[str, str]:
    """Write what a build reads beside the wheels; returns the names of the files."""
    listing = {"wheels": [list(wheel) for wheel in wheels], "uv": list(uv)}
    write_atomic(dest / REQUIREMENTS, _engine_lock.requirements(wheels))
    write_atomic(dest / LIST, json.dumps(listing, indent=1) + "\n")
    return REQUIREMENTS, LIST
