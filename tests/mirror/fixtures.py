# SPDX-License-Identifier: GPL-3.0-or-later
"""The bed that BED_DIR names, with the model on all its nodes. MIRROR_BYTES says how large the model is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.mirror.mirror_bed import Nodes


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    found = Nodes.found(int(os.environ.get("MIRROR_BYTES", "2160000000")))
    found.play_through()
    yield found
    for host in found.hosts:
        found.run(host, "rm -rf models other")


@pytest.fixture(scope="module")
def whole(nodes: Nodes) -> dict[str, str]:
    """What the head has, by content."""
    return nodes.sums(nodes.hosts[0])
