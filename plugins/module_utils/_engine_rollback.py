# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Which release to go back to: one that was current before and that every node still has whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._report import Fault, fault


def key_of(path: str, root: str) -> str:
    """What names a release on every node: its name, or the whole path of an environment that was adopted."""
    inside = f"{root}/releases/"
    return path.removeprefix(inside) if path.startswith(inside) else path


def usable(state: Mapping[str, Any], root: str) -> list[str]:
    """The releases of a node that can be gone back to, the latest first."""
    here = key_of(state["current"], root)
    past = [key_of(path, root) for path in state["history"]]
    return [key for key in dict.fromkeys(past) if key != here and (key in state["releases"] or key in state["adopted"])]


def choose(
    states: Mapping[str, Mapping[str, Any]], roots: Mapping[str, str], wanted: str = ""
) -> tuple[str, list[Fault]]:
    """The release to go back to, or the reasons why there is none.

    wanted: name of the release, or empty for the latest that all nodes have.
    """
    choices = {host: usable(state, roots[host]) for host, state in states.items()}
    currents = {host: key_of(state["current"], roots[host]) for host, state in states.items()}
    if wanted and set(currents.values()) == {wanted}:
        return "", [fault("", "rollback", f"{wanted} is current already", "another release", "choose another one")]
    if wanted:
        # A node on which it is current already was switched by a run that was cut.
        lacking = [host for host in states if wanted not in choices[host] and currents[host] != wanted]
        faults = [
            fault(
                host,
                f"release {wanted}",
                f"not there; beside the current {currents[host] or 'none'}: {', '.join(choices[host]) or 'none'}",
                "a whole release on every node",
                "choose one that all nodes have, or install it with the lock that it was made from",
            )
            for host in lacking
        ]
        return ("", faults) if faults else (wanted, [])
    first = next(iter(choices))
    for key in choices[first]:
        if all(key in choices[host] or currents[host] == key for host in states):
            return key, []
    return "", [
        fault(
            host,
            "rollback",
            f"current is {currents[host] or 'none'}; before it, still there: {', '.join(choices[host]) or 'none'}",
            "an earlier release that every node still has",
            "there is nothing to go back to; install another lock instead",
        )
        for host in states
    ]
