# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What a node knows of its deployment: the files that the roles write under the configuration folder."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG_ROOT = ".config/dgx-spark-vllm"


class NodeError(Exception):
    """A program of the node cannot go on; the text is the reason for a person."""


def config_root() -> Path:
    """The configuration folder of the user that runs this."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir) / CONFIG_ROOT


def load(name: str, folder: Path | None = None) -> dict[str, Any]:
    """One JSON file of the configuration."""
    path = (folder or config_root()) / f"{name}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        raise NodeError(f"{path} is not there: run site.yml") from err
    except ValueError as err:
        raise NodeError(f"{path} is not JSON ({err}): run site.yml") from err
    if not isinstance(found, dict):
        raise NodeError(f"{path} holds no table: run site.yml")
    return found


def first_line(path: Path) -> str:
    """The first line of a small file, or an empty text."""
    try:
        return (path.read_text(encoding="ascii").splitlines() or [""])[0].strip()
    except OSError:
        return ""


def state_dir(node: Mapping[str, Any]) -> Path:
    """Where the node keeps what it learned: events, counters, the reason it stands still."""
    path = Path(node["root"]) / "state"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
