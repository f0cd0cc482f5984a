# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of this scenario: any node by name, and the API from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._acceptance import Api

from tests.bed import nodes


@pytest.fixture
def name(host: Any) -> str:
    """The node's own name."""
    return str(host.check_output("hostname"))


@pytest.fixture
def node(host: Any) -> Callable[[str], Any]:
    """Any node by name, also from a test of the other one."""
    inventory = host.backend.ansible_inventory
    return lambda wanted: host.get_host(f"ansible://{wanted}", ansible_inventory=inventory)


@pytest.fixture
def api(node: Callable[[str], Any]) -> Api:
    """The API as a client outside the nodes sees it."""
    head = node(nodes.HEAD)
    return nodes.api_of(head, head.backend.get_variables()["ansible_host"])
