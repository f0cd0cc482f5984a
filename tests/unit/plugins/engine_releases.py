# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases built by the real uv from small wheels, at about a second each."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_build

from tests.unit.plugins.engine_makers import PYTHON, wheelhouse

SITE = f"lib/python{PYTHON}/site-packages"
EXPECTED = {"vllm": "0.25.1+cpu", "torch": "2.11.0", "torch_cuda": "13.0", "ray": "2.56.0"}


def built(root: Path, name: str, changed: dict[str, dict[str, str]] | None = None) -> Path:
    """A release below a root."""
    root.mkdir(parents=True, exist_ok=True)
    house = wheelhouse(root / "wheelhouse" / name, changed)
    result = _engine_build.build(root, name, house, sys.executable, EXPECTED, ["ray"], [], {}, 60)
    assert result["built"]
    return root / "releases" / name
