# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The program `vllm-node`: what a node does for its own units."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ._node_config import NodeError, load
from ._units import UnitError

USAGE = """usage: vllm-node VERB [ARGUMENT]

  stamp UNIT     keep what this start of the unit is made from
  wait-head      wait until the head's Ray answers
  wait-local     wait until this node's Ray answers
  wait-ray       wait until Ray has all nodes and free devices
  wait-ready     wait until the server completes a prompt
  clean          remove what a start that ended badly left behind
"""


def _clean(_: Sequence[str]) -> None:
    from ._node_clean import clean

    clean(sessions=Path(load("node")["ray"]["temp_dir"]))


def _start(name: str) -> Callable[[Sequence[str]], None]:
    def run(args: Sequence[str]) -> None:
        from . import _node_start

        getattr(_node_start, name)(*args)

    return run


def _wait_ray(_: Sequence[str]) -> None:
    from . import _node_gate

    _node_gate.enter(load("node"))


def _gate_ray(_: Sequence[str]) -> None:
    from . import _node_gate

    _node_gate.main()


VERBS: dict[str, tuple[int, Callable[[Sequence[str]], None]]] = {
    "stamp": (1, _start("stamp")),
    "wait-head": (0, _start("wait_head")),
    "wait-local": (0, _start("wait_local")),
    "wait-ready": (0, _start("wait_ready")),
    "wait-ray": (0, _wait_ray),
    "gate-ray": (0, _gate_ray),
    "clean": (0, _clean),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Exit codes: 0 done, 1 it could not be done (the reason is printed), 2 wrong usage."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] not in VERBS or len(args) - 1 != VERBS[args[0]][0]:
        print(USAGE, end="", file=sys.stderr)
        return 0 if args[:1] in (["-h"], ["--help"]) else 2
    try:
        VERBS[args[0]][1](args[1:])
    except (NodeError, UnitError) as err:
        print(f"vllm-node {args[0]}: {err}", file=sys.stderr, flush=True)
        return 1
    return 0
