"""Snapshots: the nodes' upper layers, kept as read-only layers that later beds start on."""

from __future__ import annotations

from pathlib import Path

from .options import Bed


def lower_folders(bed: Bed, cache: Path, base: Path) -> dict[int, list[Path]]:
    """The read-only layers of every node, topmost first."""
    return {number: [base] for number in bed.numbers()}
