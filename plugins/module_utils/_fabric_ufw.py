# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Reads what `ufw status verbose` prints, and says what it would do with a new connection."""

from __future__ import annotations

import re

from . import _roce_ip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from ._fabric_nft import Packet

    class UfwRule(TypedDict):
        """One IPv4 rule for incoming traffic; empty texts match anything, no ports match all."""

        action: str
        ports: list[tuple[int, int]]
        protocol: str
        interface: str
        source: str
        destination: str

    class Ufw(TypedDict):
        """What ufw is set to."""

        active: bool
        incoming: str
        rules: list[UfwRule]


_LINE = re.compile(r"^(?P<to>\S.*?)\s+(?P<action>ALLOW|DENY|REJECT|LIMIT)(?: (?P<way>IN|OUT|FWD))?\s+(?P<source>\S.*)$")
_PORTS = re.compile(r"^(?P<ports>\d+(?::\d+)?(?:,\d+(?::\d+)?)*)(?:/(?P<protocol>tcp|udp))?$")


def parse(text: str) -> Ufw:
    """The status, the default for incoming traffic, and the rules in their order."""
    default = re.search(r"^Default: (\w+) \(incoming\)", text, re.MULTILINE)
    rules = []
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match and match["way"] in (None, "IN") and "(v6)" not in line:
            rule = _rule(match["action"], match["to"], match["source"])
            rules += [rule] if rule else []
    return {
        "active": bool(re.search(r"^Status: active", text, re.MULTILINE)),
        "incoming": default[1] if default else "deny",
        "rules": rules,
    }


def _rule(action: str, to: str, source: str) -> UfwRule | None:
    """The rule; None where it asks for a source port, which a new connection of a peer does not have."""
    words = re.sub(r"\s*(\(log(-all)?\)|#.*)$", "", source.strip()).split(" ")
    if (words[0].partition("/")[0] != "Anywhere" and not _place(words[0])) or (len(words) > 1 and words[1] != "on"):
        return None
    to, _on, interface = to.partition(" on ")
    rule: UfwRule = {
        "action": action,
        "ports": [],
        "protocol": "",
        "interface": interface.split(" ")[0],
        "source": _place(words[0]),
        "destination": "",
    }
    for word in to.split(" "):
        ports = _PORTS.match(word)
        if ports:
            rule["ports"] = [_span(part) for part in ports["ports"].split(",")]
            rule["protocol"] = ports["protocol"] or ""
        elif _place(word):
            rule["destination"] = _place(word)
        elif word.startswith("Anywhere/"):
            rule["protocol"] = word.partition("/")[2]
    return rule


def _span(text: str) -> tuple[int, int]:
    first, _colon, last = text.partition(":")
    return int(first), int(last or first)


def _place(word: str) -> str:
    """An address or subnet as a subnet; empty for Anywhere and for what is neither."""
    text = word if "/" in word else f"{word}/32"
    try:
        number, prefix = _roce_ip.parse_subnet(text)
    except ValueError:
        return ""
    return f"{_roce_ip.to_text(number)}/{prefix}"


def verdict(ufw: Ufw, packet: Packet) -> str:
    """`accept` or `drop` for a TCP connection: the first rule that matches decides, the default where none does."""
    if not ufw["active"]:
        return "accept"
    for rule in ufw["rules"]:
        if (
            rule["protocol"] in ("", "tcp")
            and rule["interface"] in ("", packet["interface"])
            and (not rule["ports"] or any(first <= packet["port"] <= last for first, last in rule["ports"]))
            and (not rule["source"] or _roce_ip.contains(rule["source"], packet["source"]))
            and (not rule["destination"] or _roce_ip.contains(rule["destination"], packet["destination"]))
        ):
            return "accept" if rule["action"] in ("ALLOW", "LIMIT") else "drop"
    return "accept" if ufw["incoming"] == "allow" else "drop"


def edges(ufw: Ufw) -> set[int]:
    """The ports at which a verdict can change."""
    spans = [span for rule in ufw["rules"] for span in rule["ports"]]
    return {first for first, _last in spans} | {last + 1 for _first, last in spans}
