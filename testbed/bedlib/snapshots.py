# SPDX-License-Identifier: GPL-3.0-or-later
"""Listing and deleting snapshots."""

from __future__ import annotations

import time
from pathlib import Path

from . import layers, tree
from .options import Bed
from .system import BedError, say


def show(bed: Bed, cache: Path, name: str | None) -> int:
    """One line a snapshot; asked for one by name, say in words why it does not fit."""
    current = tree.digest(bed.distro)
    if name is not None:
        layers.check(cache, name, current, bed.nodes)
        print(cache / "snapshots" / current / name)
        return 0
    for folder in layers.found(cache):
        meta = layers.read_meta(folder)
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(int(str(meta["made"]))))
        fits = "" if folder.parent.name == current else "  of another tree"
        print(f"{folder.name}  {meta['nodes']} nodes  {made}{fits}")
    return 0


def forget(cache: Path, name: str) -> None:
    """Delete a snapshot, of whatever tree; one that a bed stands on stays."""
    with layers.store_lock(cache):
        named = [folder for folder in layers.found(cache) if folder.name == name]
        if not named:
            raise BedError(f"no snapshot {name} in {cache / 'snapshots'}")
        for folder in named:
            layers.drop(folder)
            say(f"snapshot {name} deleted ({folder.parent.name})")
            if not any(folder.parent.iterdir()):
                folder.parent.rmdir()
