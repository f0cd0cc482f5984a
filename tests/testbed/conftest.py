# SPDX-License-Identifier: GPL-3.0-or-later
"""Real beds with names of their own: root on Linux needed, nothing else on the machine is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from testbed.bedlib import system
from tests.testbed.handle import Handle


@pytest.fixture(scope="session", autouse=True)
def _able() -> None:
    if os.geteuid() != 0:
        pytest.skip("root is needed: the bed makes namespaces, mounts and control groups")
    missing = system.missing_packages("trixie")
    if missing:
        pytest.skip(f"missing on this machine: {', '.join(missing)} (`testbed/bed deps` installs them)")


@pytest.fixture(scope="session")
def handle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handle]:
    """One bed that the tests share; each leaves it as it found it."""
    shared = Handle(tmp_path_factory.mktemp("shared") / "bed", "bedtest", "10.213.1")
    shared.call("up", timeout=900)
    try:
        yield shared
    finally:
        shared.call("down")
        assert shared.traces() == []
