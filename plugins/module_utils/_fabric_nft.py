# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Reads what `nft -j list ruleset` prints, and follows a new TCP connection through the chains of the input hook.

Three answers: accept, drop, and unknown where a rule that this code does not understand might decide.
"""

from __future__ import annotations

import json

from . import _roce_ip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class Packet(TypedDict):
        """The connection to follow."""

        source: str
        destination: str
        interface: str
        port: int


ACCEPT, DROP, UNKNOWN, RETURN, NEXT = "accept", "drop", "unknown", "return", "next"
_FAMILIES = ("ip", "inet")
# Statements of other programs' making, which may end in any verdict.
_OPAQUE = frozenset({"xt", "queue", "synproxy", "tproxy"})


class Ruleset:
    """Chains, rules and named sets of the families that IPv4 passes."""

    def __init__(self, text: str, leave_out: str = "") -> None:
        """Take the JSON text, but for the tables of that name; ValueError where it is none."""
        items = json.loads(text or '{"nftables": []}').get("nftables", [])
        self.chains: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.rules: dict[tuple[str, str, str], list[list[Any]]] = {}
        self.sets: dict[tuple[str, str, str], list[Any]] = {}
        for item in items:
            for kind, body in item.items():
                if body.get("family") not in _FAMILIES or (leave_out and body.get("table") == leave_out):
                    continue
                if kind == "chain":
                    self.chains[body["family"], body["table"], body["name"]] = body
                elif kind == "rule":
                    self.rules.setdefault((body["family"], body["table"], body["chain"]), []).append(body["expr"])
                elif kind in ("set", "map"):
                    self.sets[body["family"], body["table"], body["name"]] = body.get("elem", [])

    def input_chains(self) -> list[tuple[str, str, str]]:
        """The base chains a packet to this host passes, in their order; those that ufw made answer to ufw."""
        by_ufw = {key[:2] for key in self.chains if key[2].startswith("ufw-")}
        keys = [
            key
            for key, chain in self.chains.items()
            if chain.get("hook") == "input" and chain.get("type", "filter") == "filter" and key[:2] not in by_ufw
        ]
        return sorted(keys, key=lambda key: int(self.chains[key].get("prio", 0)))

    def verdict(self, packet: Packet) -> str:
        """What becomes of a new TCP connection. An accept ends one base chain; a drop ends all."""
        doubt = False
        for key in self.input_chains():
            policy = self.chains[key].get("policy", ACCEPT)
            ends = {policy if end in (NEXT, RETURN) else end for end in self._walk(key, packet, 0)}
            if ends == {DROP}:
                return DROP
            doubt = doubt or DROP in ends
        return UNKNOWN if doubt else ACCEPT

    def _walk(self, key: tuple[str, str, str], packet: Packet, depth: int) -> set[str]:
        """The ends that a chain can come to: more than one where it holds a rule that is not understood."""
        if depth > 16:
            return {ACCEPT, DROP}
        possible: set[str] = set()
        for expressions in self.rules.get(key, []):
            ends = self._rule(key, expressions, packet, depth)
            possible |= ends - {NEXT}
            if NEXT not in ends:
                return possible
        return possible | {NEXT}

    def _rule(self, key: tuple[str, str, str], expressions: list[Any], packet: Packet, depth: int) -> set[str]:
        unsure: set[str] = set()
        for expression in expressions:
            ((kind, body),) = expression.items()
            if kind == "match":
                met = self._match(key, body, packet)
                if met is False:
                    return {NEXT}
                unsure |= set() if met else {NEXT}
            elif kind == "vmap":
                return self._map(key, body, packet, depth) | unsure
            elif kind in _OPAQUE:
                return {ACCEPT, DROP, NEXT}
            else:
                ends = self._statement(key, kind, body, packet, depth)
                if ends:
                    return ends | unsure
        return {NEXT}

    def _statement(self, key: tuple[str, str, str], kind: str, body: Any, packet: Packet, depth: int) -> set[str]:
        """The ends of a verdict; empty for a statement that decides nothing, as a counter does."""
        if kind in (ACCEPT, DROP, RETURN):
            return {kind}
        if kind == "reject":
            return {DROP}
        if kind in ("jump", "goto"):
            ends = self._walk((key[0], key[1], body["target"]), packet, depth + 1)
            back = NEXT if kind == "jump" else RETURN
            return {back if end in (NEXT, RETURN) else end for end in ends}
        return set()

    def _map(self, key: tuple[str, str, str], body: dict[str, Any], packet: Packet, depth: int) -> set[str]:
        """The ends of a verdict map: the first entry that holds decides."""
        actual, data = _actual(body["key"], packet), body["data"]
        entries = data["set"] if isinstance(data, dict) else self.sets.get((key[0], key[1], str(data)[1:]), [])
        possible: set[str] = set()
        for value, verdict in entries:
            met = None if actual is None else self._holds(key, actual, value)
            if met is not False:
                ((kind, target),) = verdict.items()
                ends = self._statement(key, kind, target, packet, depth) or {NEXT}
                if met:
                    return possible | ends
                possible |= ends
        return possible | {NEXT}

    def _match(self, key: tuple[str, str, str], body: dict[str, Any], packet: Packet) -> bool | None:
        """Whether the packet meets it; None where this code cannot say."""
        actual = _actual(body["left"], packet)
        if actual is None:
            return None
        met = self._holds(key, actual, body["right"])
        if met is None:
            return None
        return not met if body["op"] == "!=" else met

    def _holds(self, key: tuple[str, str, str], actual: str | int, right: Any) -> bool | None:
        if isinstance(right, dict) and "set" in right:
            return self._any(key, actual, right["set"])
        if isinstance(right, list):
            return self._any(key, actual, right)
        if isinstance(right, str) and right.startswith("@"):
            return self._any(key, actual, self.sets.get((key[0], key[1], right[1:]), []))
        if isinstance(right, dict) and "elem" in right:
            return self._holds(key, actual, right["elem"]["val"])
        if isinstance(right, dict) and "prefix" in right:
            prefix = right["prefix"]
            return isinstance(actual, str) and _inside(f"{prefix['addr']}/{prefix['len']}", actual)
        if isinstance(right, dict) and "range" in right:
            return _between(actual, *right["range"])
        if isinstance(right, str) and isinstance(actual, str) and right.endswith("*"):
            return actual.startswith(right[:-1])
        return right == actual if isinstance(right, (str, int)) else None

    def _any(self, key: tuple[str, str, str], actual: str | int, values: Any) -> bool | None:
        answers = [self._holds(key, actual, value) for value in (values if isinstance(values, list) else [values])]
        return True if True in answers else (None if None in answers else False)


def _actual(left: dict[str, Any], packet: Packet) -> str | int | None:
    """What the packet has at the place a match looks at."""
    if "payload" in left:
        field = (left["payload"].get("protocol"), left["payload"].get("field"))
        fields: dict[tuple[str, str], str | int] = {
            ("ip", "saddr"): packet["source"],
            ("ip", "daddr"): packet["destination"],
            ("ip", "protocol"): "tcp",
            ("tcp", "dport"): packet["port"],
            ("th", "dport"): packet["port"],
            ("udp", "dport"): -1,
            ("icmp", "type"): "",
            ("tcp", "flags"): "syn",
        }
        return fields.get(field)
    if "meta" in left:
        return {
            "iifname": packet["interface"],
            "iif": packet["interface"],
            "l4proto": "tcp",
            "nfproto": "ipv4",
            "protocol": "ip",
            "pkttype": "host",
        }.get(left["meta"]["key"])
    if "&" in left and isinstance(left["&"], list) and left["&"][0] == _FLAGS and "syn" in left["&"][1]:
        return "syn"
    # The connection is a new one, and nobody redirected it.
    return {"state": "new", "status": "", "direction": "original"}.get(left.get("ct", {}).get("key"))


_FLAGS = {"payload": {"protocol": "tcp", "field": "flags"}}


def _inside(subnet: str, address: str) -> bool | None:
    try:
        return _roce_ip.contains(subnet, address)
    except ValueError:
        return None


def _between(actual: str | int, first: Any, last: Any) -> bool | None:
    if isinstance(actual, int) and isinstance(first, int) and isinstance(last, int):
        return first <= actual <= last
    try:
        return _roce_ip.to_int(first) <= _roce_ip.to_int(str(actual)) <= _roce_ip.to_int(last)
    except (ValueError, AttributeError):
        return None


def edges(ruleset: Ruleset) -> set[int]:
    """Every number in the rules, and the next: the ports at which a verdict can change are among them."""
    found: set[int] = set()

    def collect(value: Any) -> None:
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536:
            found.update((value, value + 1))
        elif isinstance(value, list):
            for item in value:
                collect(item)
        elif isinstance(value, dict):
            for item in value.values():
                collect(item)

    collect([*ruleset.rules.values(), *ruleset.sets.values()])
    return found
