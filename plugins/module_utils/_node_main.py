# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The program `vllm-node`: what a node does for its own units."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from ._node_config import NodeError
from ._units import UnitError

USAGE = """usage: vllm-node VERB [ARGUMENT]

  status            what runs here, since when, and why not; --json for programs
  before UNIT       before the main process of a unit: keep what it starts from, wait for what it needs
  after UNIT        after it: wait until it answers
  ended UNIT        when it has ended: keep why, remove what it left
  stamp UNIT        keep what this start of a unit is made from
  prepare           make this node ready for a load: leftovers, page cache of the model files, free memory
  clean             remove what a start that ended badly left behind
  evidence          print what tells why a node does not serve
  watchdog          watch the server of this node until stopped
  guard             watch the memory of this node until stopped
  halt              keep the reason why everything stands still

exit codes: 0 done, 1 it could not be done (the reason is printed), 2 wrong usage
"""

# Verb: module, function, number of arguments (least, most). Modules are imported late: each start pays for one only.
VERBS: dict[str, tuple[str, str, int, int]] = {
    "status": ("_node_status", "command", 0, 1),
    "before": ("_node_start", "before", 1, 1),
    "after": ("_node_start", "after", 1, 1),
    "ended": ("_node_start", "ended", 1, 1),
    "stamp": ("_node_start", "stamp", 1, 1),
    "halt": ("_node_start", "halt", 0, 0),
    "gate": ("_node_gate", "gate", 0, 0),
    "cluster": ("_node_gate", "cluster", 0, 0),
    "prepare": ("_node_memory", "command", 0, 0),
    "clean": ("_node_clean", "command", 0, 0),
    "evidence": ("_node_evidence", "command", 0, 0),
    "gather": ("_node_evidence", "gather", 0, 0),
    "watchdog": ("_watchdog_run", "main", 0, 0),
    "guard": ("_guard_run", "main", 0, 0),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] not in VERBS:
        print(USAGE, end="", file=sys.stderr)
        return 0 if args[:1] in (["-h"], ["--help"]) else 2
    module, function, least, most = VERBS[args[0]]
    if not least <= len(args) - 1 <= most:
        print(USAGE, end="", file=sys.stderr)
        return 2
    verb: Callable[..., None] = getattr(import_module(f".{module}", __package__), function)
    try:
        verb(*args[1:])
    except (NodeError, UnitError) as err:
        print(f"vllm-node {args[0]}: {err}", file=sys.stderr, flush=True)
        return 1
    return 0
