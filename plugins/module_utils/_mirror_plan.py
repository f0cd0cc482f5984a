# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""From what every node has to what every node does: who stages, who offers, who takes what from whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ._model_tree_state import draft_errors
from ._progress import human
from ._report import Fault, fault

# A node that lacks this share of the models takes part in the chain; one that lacks less asks the head alone.
_CHAIN_SHARE: Final = 0.5


def _state(states: Mapping[str, Any], host: str, name: str) -> Mapping[str, Any]:
    return next(model for model in states[host]["models"] if model["name"] == name)


def _pinned(wanted: Mapping[str, Any]) -> str:
    revision = str(wanted.get("revision") or "")
    return revision if len(revision) == 40 else ""


def _needs_head(state: Mapping[str, Any], wanted: Mapping[str, Any], alone: bool) -> bool:
    """Whether the head must do something before its model can be relied on, and be mirrored."""
    stale = bool(_pinned(wanted)) and state["revision"] not in ("", _pinned(wanted))
    return not state["complete"] or stale or bool(state["unseen"]) or (not state["manifest"] and not alone)


def _needs_peer(state: Mapping[str, Any], head: Mapping[str, Any]) -> bool:
    return not state["complete"] or state["manifest"] != head["manifest"] or bool(state["unseen"])


def _to_move(state: Mapping[str, Any], head: Mapping[str, Any], wanted: Mapping[str, Any], stale: bool) -> int:
    """Bytes that this node will write for one model, as well as it can be known before."""
    size = int(wanted.get("bytes") or 0) or int(head["bytes"])
    if stale:
        return size
    if head["complete"] and head["manifest"]:
        # Better than what the card says of it.
        size = sum(int(file[0]) for file in head["files"].values())
    if state["manifest"] and head["manifest"] and state["manifest"] != head["manifest"]:
        # Another version is here: what both have in common stays.
        other = sum(int(file[0]) for name, file in head["files"].items() if state["files"].get(name) != file)
        return max(min(other + int(state["to_move"]) - int(state["arrived"]), size), 0)
    if state["complete"] or state["manifest"]:
        return int(state["to_move"])
    return max(size - int(state["bytes"]) - int(state["arrived"]), 0)


def disk_faults(hosts: Mapping[str, int], states: Mapping[str, Any], root: str, reserve: int) -> list[Fault]:
    """Nodes whose disk is too small, all of them, before the first byte (C73)."""
    return [
        fault(
            host,
            f"disk of {root}",
            f"{human(states[host]['disk_free'])} free",
            f"{human(needed)} for the models and {human(reserve)} that stay free",
            "make room, or choose another models_root",
        )
        for host, needed in hosts.items()
        if needed and needed + reserve > int(states[host]["disk_free"])
    ]


def _draft_faults(hosts: Sequence[str], states: Mapping[str, Any]) -> list[Fault]:
    """What a draft's own files say against serving it; the same on every node, so told once."""
    found: dict[tuple[str, str], Fault] = {}
    for host in hosts:
        for item in draft_errors(host, states[host]["models"]):
            found.setdefault((item["subject"], item["found"]), item)
    return list(found.values())


def plan(
    hosts: Sequence[str],
    wanted: Sequence[Mapping[str, Any]],
    states: Mapping[str, Mapping[str, Any]],
    addresses: Mapping[str, Sequence[str]],
    root: str,
    reserve: int,
) -> dict[str, Any]:
    """What is to be done. hosts: the head first; states: result of model_state_info of each host.

    Returns errors, work (whether there is any), and for each host under `hosts`: stage (models to get from the source;
    the head's only), receive, offer, sources, peers, to_move (bytes).
    """
    head, peers = hosts[0], hosts[1:]
    names = [str(model["name"]) for model in wanted]
    by_name = dict(zip(names, wanted, strict=True))
    heads = {name: _state(states, head, name) for name in names}
    stage = [name for name in names if _needs_head(heads[name], by_name[name], not peers)]
    stale = [n for n in stage if _pinned(by_name[n]) and heads[n]["revision"] not in ("", _pinned(by_name[n]))]
    moves = {head: sum(_to_move(heads[n], heads[n], by_name[n], n in stale) for n in stage)}
    receive: dict[str, list[str]] = {head: []}
    for host in peers:
        mine = {name: _state(states, host, name) for name in names}
        receive[host] = [n for n in names if n in stale or not heads[n]["complete"] or _needs_peer(mine[n], heads[n])]
        # Staging on the head alone (proving what is there) may change its manifest.
        receive[host] += [n for n in stage if n not in receive[host]]
        moves[host] = sum(_to_move(mine[n], heads[n], by_name[n], n in stale) for n in receive[host])
    whole = sum(int(by_name[n].get("bytes") or 0) or int(heads[n]["bytes"]) for n in names)
    chain = [host for host in peers if moves[host] >= _CHAIN_SHARE * whole and moves[host]]
    result: dict[str, Any] = {}
    for host in hosts:
        sources = [{"host": head, "addresses": list(addresses[head]), "chained": False}] if receive[host] else []
        before = chain.index(host) - 1 if host in chain else -1
        if before >= 0:
            upstream = chain[before]
            sources.insert(0, {"host": upstream, "addresses": list(addresses[upstream]), "chained": True})
        follower = [h for h in chain if h != host and host in chain and chain.index(h) == chain.index(host) + 1]
        takers = [h for h in peers if receive[h]] if host == head else follower
        result[host] = {
            "stage": stage if host == head else [],
            "receive": receive[host],
            "offer": [n for n in names if any(n in receive[h] for h in takers)],
            "sources": sources,
            "peers": sorted({address for h in takers for address in addresses[h]}),
            "addresses": list(addresses[host]),
            "to_move": moves[host],
        }
    return {
        "errors": [*disk_faults(moves, states, root, reserve), *_draft_faults(hosts, states)],
        "work": bool(stage) or any(receive.values()),
        "hosts": result,
    }


def summary(planned: Mapping[str, Any], head: str, source: str) -> list[str]:
    """The plan for a person, in bytes: what a run in check mode says."""
    lines = []
    for host, mine in planned["hosts"].items():
        if mine["stage"]:
            what = f"{human(mine['to_move'])} ({mine['to_move']} bytes) from {source}"
            lines.append(f"{host}: {', '.join(mine['stage'])}: {what if mine['to_move'] else 'to be proved'}")
        if mine["receive"]:
            upstream = mine["sources"][0]["host"] if mine["sources"] else head
            what = f"{human(mine['to_move'])} ({mine['to_move']} bytes) from {upstream} over the fabric"
            lines.append(f"{host}: {', '.join(mine['receive'])}: {what if mine['to_move'] else 'to be proved'}")
    return lines
