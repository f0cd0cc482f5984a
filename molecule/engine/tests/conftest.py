# SPDX-License-Identifier: GPL-3.0-or-later
"""The bed of the engine's scenario."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.releases import Bed


@pytest.fixture(scope="module")
def bed(host: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch_module: pytest.MonkeyPatch) -> Bed:
    folder = tmp_path_factory.mktemp("engine")
    seeds = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dgx-spark-vllm/wheelhouse"
    # Nobody wants the controller's wheels of these releases afterwards.
    monkeypatch_module.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return Bed(host, folder, seeds)


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch
