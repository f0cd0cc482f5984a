# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""A host's pins: what an inventory may fix, and nothing that NCCL would read as something else."""

from __future__ import annotations

from . import _roce_ip
from ._roce_problem import CONFIG, problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._roce_types import Pins, Problem

_LISTS = {"interface": "interfaces", "device": "devices", "address": "addresses"}
KEYS = (*_LISTS, "index")


def plain_index(value: object) -> int | None:
    """A GID index given as a number or as a plain decimal; None for everything NCCL would misread."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value <= 255 else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and str(int(value)) == value:
        return plain_index(int(value))
    return None


def normalise(pins: Mapping[str, object] | None, host: str) -> tuple[Pins, list[Problem]]:
    """the pins with every list a list, and what is wrong with them. Plural keys are accepted as well"""
    result: Pins = {"interfaces": [], "devices": [], "addresses": [], "index": None}
    errors: list[Problem] = []
    for key, value in (pins or {}).items():
        name = _LISTS.get(key, key)
        if name == "index":
            result["index"] = plain_index(value)
            if result["index"] is None and value is not None:
                errors.append(_bad_index(host, value))
        elif name in ("interfaces", "devices", "addresses"):
            values = [value] if isinstance(value, str) else value
            if not isinstance(values, list) or not all(isinstance(item, str) and item for item in values):
                errors.append(_bad(host, key, value, "a name, or a list of names"))
                continue
            if name == "addresses":
                errors += [_bad(host, key, item, "an IPv4 address") for item in values if not is_address(item)]
            result[name] = values  # type: ignore[literal-required]
        else:
            errors.append(_bad(host, key, value, f"one of {', '.join(KEYS)}"))
    return result, errors


def is_address(text: str) -> bool:
    """Whether the text is an IPv4 address that a peer can be reached under."""
    try:
        return _roce_ip.is_usable(text)
    except ValueError:
        return False


def _bad(host: str, key: str, value: object, expected: str) -> Problem:
    return problem(host, f"pin {key}", repr(value), expected, "correct the pin in the inventory", CONFIG)


def _bad_index(host: str, value: object) -> Problem:
    return problem(
        host,
        "pin index",
        repr(value),
        "a plain decimal number from 0 to 255",
        "NCCL reads any text as 0 and a leading zero as octal: write a number, or leave the pin out (gid_mode: auto)",
        CONFIG,
    )
