# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The file `fabric.json` that a play writes and every start of a unit reads."""

from __future__ import annotations

import json
import os

# pathlib would be the dearest import of a unit's start.
# ruff: noqa: PTH111, PTH123

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DEFAULT_PATH = "~/.config/dgx-spark-vllm/fabric.json"
DEFAULTS: dict[str, Any] = {
    "mode": "fabric",
    "root": "/",
    "subnets": [],
    "addresses": [],
    "gid_mode": "auto",
    "pins": {},
    "wait_s": 120,
    "peers": {},
}
MODES = ("fabric", "single")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "mode": str,
    "root": str,
    "subnets": list,
    "addresses": list,
    "gid_mode": str,
    "pins": dict,
    "wait_s": (int, float),
    "peers": dict,
}


class ConfigError(Exception):
    """The configuration cannot be used; the message names file, key, what was found and what is expected."""


def parse(text: str, path: str) -> dict[str, Any]:
    """The configuration with every key present; ConfigError for what no start could use."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}; run the play again, which writes it") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: found {type(data).__name__}, expected an object; run the play again")
    for key, value in data.items():
        if key not in _TYPES:
            raise ConfigError(f"{path}: {key}: unknown key, expected one of {', '.join(DEFAULTS)}")
        if not isinstance(value, _TYPES[key]) or isinstance(value, bool):
            raise ConfigError(f"{path}: {key}: found {value!r}, expected {_wanted(key)}")
    config = {**DEFAULTS, **data}
    if config["mode"] not in MODES:
        raise ConfigError(f"{path}: mode: found {config['mode']!r}, expected one of {', '.join(MODES)}")
    if config["wait_s"] < 0:
        raise ConfigError(f"{path}: wait_s: found {config['wait_s']}, expected a number of seconds from 0")
    return config


def _wanted(key: str) -> str:
    names = {"str": "text", "list": "a list", "dict": "an object"}
    return names[type(DEFAULTS[key]).__name__] if key != "wait_s" else "a number"


def load(path: str) -> dict[str, Any]:
    """The configuration in a file."""
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; a play writes this file, or name one with --config") from None
    return parse(text, path)


def default_path(environ: Mapping[str, str]) -> str:
    """Where the configuration lies unless an option says otherwise."""
    return environ.get("DGX_SPARK_VLLM_FABRIC") or os.path.expanduser(DEFAULT_PATH)
