# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of this scenario: the two VMs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import testinfra

from tests.kernel.pair import Node


@pytest.fixture(scope="session")
def inventory(request: pytest.FixtureRequest) -> str:
    """The scenario's inventory, for plays that a test runs."""
    return str(request.config.getoption("ansible_inventory"))


def _node(request: pytest.FixtureRequest, number: int) -> Node:
    inventory = request.config.getoption("ansible_inventory")
    return Node(number, testinfra.get_host(f"ansible://spark-{number:02d}", ansible_inventory=inventory))


@pytest.fixture(scope="session")
def head(request: pytest.FixtureRequest) -> Node:
    return _node(request, 1)


@pytest.fixture(scope="session")
def worker(request: pytest.FixtureRequest) -> Node:
    return _node(request, 2)


@pytest.fixture(scope="session")
def seen(head: Node, worker: Node) -> dict[int, dict[str, Any]]:
    """What the module says of both nodes with nothing given, asked at once, before any test changed something."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip((1, 2), pool.map(Node.module, (head, worker)), strict=True))
