# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What `fabric-env show` prints: one look at the host now, beside what the last start chose."""

# A part of a program of its own, run without Ansible.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import json

from . import _fabric_env, _fabric_state
from ._roce_problem import as_text
from ._roce_table import align, gid_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ._roce_types import Rail


def show(config: Mapping[str, Any], state_path: str, as_json: bool) -> int:
    """Print it; the exit code is that which `run` would end with now, without any waiting."""
    facts, resolution = _fabric_env.look(config)
    state = _fabric_state.load(state_path)
    errors = resolution["errors"]
    if as_json:
        print(json.dumps({**resolution, "ports": facts["ports"], "last_start": state}, indent=1))
    else:
        for part in (
            gid_table(facts["ports"], resolution["rails"]),
            rail_table(resolution["rails"], state),
            "\n".join(f"{name}={value}" for name, value in sorted(resolution["environment"].items())),
            *(f"warning: {as_text(warning)}" for warning in resolution["warnings"]),
            *(f"error: {as_text(error)}" for error in errors),
        ):
            if part:
                print(part + "\n")
    return min((_fabric_env.CODES[error["fault"]] for error in errors), default=_fabric_env.OK)


def rail_table(rails: list[Rail], state: Mapping[str, Any]) -> str:
    """The rails of now, each with what the last start made of it."""
    last = {rail["address"]: rail for rail in state.get("rails", [])}
    lines: list[tuple[str, ...]] = [("rail", "interface", "device", "MTU", "Gb/s", "index", "last start")]
    for rail in rails:
        speed = "?" if rail["speed_mbps"] is None else f"{rail['speed_mbps'] / 1000:g}"
        lines.append(
            (
                rail["address"],
                rail["netdev"],
                f"{rail['device']}:{rail['port']}",
                str(rail["mtu"] or "?"),
                speed,
                str(rail["gid_index"]),
                _since(rail, last.get(rail["address"])),
            )
        )
    return align(lines) if rails else ""


def _since(rail: Rail, last: Mapping[str, Any] | None) -> str:
    if last is None:
        return "none yet"
    if last["gid_index"] != rail["gid_index"]:
        return f"used {last['gid_index']}: moved since, the next start takes {rail['gid_index']}"
    return _fabric_state.moved_text(dict(last)) or f"the same since {last['since']}"


def check(config: Mapping[str, Any], _state_path: str, as_json: bool) -> int:
    """Reach every peer over every rail."""
    from . import _fabric_reach

    _facts, resolution = _fabric_env.look(config)
    if resolution["errors"]:
        return show(config, _state_path, as_json)
    peers = [address for addresses in config["peers"].values() for address in addresses]
    found = _fabric_reach.reach(resolution["rails"], peers)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        for entry in found:
            print(_fabric_reach.as_line(entry))
    return _fabric_env.OK if all(entry["reached"] for entry in found) else _fabric_env.UNREACHED
