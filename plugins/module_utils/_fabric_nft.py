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
_HARMLESS = frozenset({"counter", "log", "limit", "comment", "ct helper", "mangle"})


class Ruleset:
    """Chains, rules and named sets of the families that IPv4 passes."""

    def __init__(self, text: str) -> None:
        """Take the JSON text; ValueError where it is none."""
        items = json.loads(text or '{"nftables": []}').get("nftables", [])
        self.chains: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.rules: dict[tuple[str, str, str], list[list[Any]]] = {}
        self.sets: dict[tuple[str, str, str], list[Any]] = {}
        for item in items:
            for kind, body in item.items():
                if body.get("family") not in _FAMILIES:
                    continue
                if kind == "chain":
                    self.chains[body["family"], body["table"], body["name"]] = body
                elif kind == "rule":
                    self.rules.setdefault((body["family"], body["table"], body["chain"]), []).append(body["expr"])
                elif kind in ("set", "map"):
                    self.sets[body["family"], body["table"], body["name"]] = body.get("elem", [])

    def input_chains(self) -> list[tuple[str, str, str]]:
        """The base chains a packet to this host passes, in their order."""
        keys = [
            key
            for key, chain in self.chains.items()
            if chain.get("hook") == "input" and chain.get("type", "filter") == "filter"
        ]
        return sorted(keys, key=lambda key: int(self.chains[key].get("prio", 0)))

    def verdict(self, packet: Packet) -> str:
        """What becomes of a new TCP connection. An accept ends one base chain; a drop ends all."""
        doubt = False
        for key in self.input_chains():
            answer = self._walk(key, packet, 0)
            if answer in (NEXT, RETURN):
                answer = self.chains[key].get("policy", ACCEPT)
            if answer == DROP:
                return UNKNOWN if doubt else DROP
            doubt = doubt or answer == UNKNOWN
        return UNKNOWN if doubt else ACCEPT

    def _walk(self, key: tuple[str, str, str], packet: Packet, depth: int) -> str:
        if depth > 16:
            return UNKNOWN
        for expressions in self.rules.get(key, []):
            answer = self._rule(key, expressions, packet, depth)
            if answer != NEXT:
                return answer
        return NEXT

    def _rule(self, key: tuple[str, str, str], expressions: list[Any], packet: Packet, depth: int) -> str:
        certain = True
        for expression in expressions:
            (kind, body), *_rest = expression.items()
            if kind == "match":
                met = self._match(key, body, packet)
                if met is False:
                    return NEXT
                certain = certain and met is True
            elif kind in (ACCEPT, DROP, "reject", RETURN):
                answer = DROP if kind == "reject" else kind
                return answer if certain else UNKNOWN
            elif kind in ("jump", "goto"):
                answer = self._walk((key[0], key[1], body["target"]), packet, depth + 1)
                answer = NEXT if answer == RETURN else answer
                if kind == "goto" and answer == NEXT:
                    answer = RETURN
                return answer if certain or answer == NEXT else UNKNOWN
            elif kind not in _HARMLESS:
                certain = False
        return NEXT

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
        }
        return fields.get(field)
    if "meta" in left:
        return {
            "iifname": packet["interface"],
            "iif": packet["interface"],
            "l4proto": "tcp",
            "nfproto": "ipv4",
            "protocol": "ip",
        }.get(left["meta"]["key"])
    return "new" if left.get("ct", {}).get("key") == "state" else None


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
