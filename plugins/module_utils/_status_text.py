# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""One screen about a deployment out of what its nodes say, or out of what is known of those that say nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ._fabric_state import moved_text

GIB = 1 << 30


def _ago(seconds: float) -> str:
    """A time span in its largest sensible unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _head_lines(found: Mapping[str, Any]) -> list[str]:
    """What the head knows of the whole."""
    server = found.get("server") or {}
    cluster = found.get("cluster") or {}
    reason = found.get("reason")
    lines = [f"{server.get('model') or found.get('card')}: {'not serving' if reason else 'serving'}"]
    if reason:
        lines.append(f"  why        {reason}")
    lines.append(f"  address    {found.get('public_url', '?')}")
    if "devices" in cluster:
        wanted = found.get("devices", "?")
        lines.append(f"  devices    {cluster['used']:.0f} in use, {cluster['devices']:.0f}/{wanted} in Ray")
    elif cluster.get("error"):
        lines.append(f"  devices    not known: {' '.join(str(cluster['error']).split())[-200:]}")
    if server.get("requests") is not None:
        drafted = server.get("drafted") or 0
        share = f", {100 * (server.get('accepted') or 0) / drafted:.0f} % of the draft accepted" if drafted else ""
        lines.append(f"  requests   {server['requests']:.0f} now, {server.get('tokens') or 0:.0f} tokens so far{share}")
    kv = found.get("kv") or {}
    if kv.get("kv_tokens"):
        lines.append(f"  kv cache   {kv['kv_tokens']:,.0f} tokens, {kv.get('contexts') or 0:.2f} full contexts")
    lines.append(f"  card       {found.get('card')}, release {str(found.get('release', '')).rpartition('/')[2]}")
    return lines


def _node_lines(name: str, found: Mapping[str, Any], now: float) -> list[str]:
    """One node in a few lines."""
    memory = found.get("memory") or {}
    free = f"{memory.get('available', 0) / GIB:.0f} of {memory.get('total', 0) / GIB:.0f} GiB free"
    lines = [f"{name}: {found.get('address', 'address not known')}, {free}"]
    for unit, state in (found.get("units") or {}).items():
        notes = [
            f"since {_ago(state['since_s'])}" if state.get("since_s") is not None else "",
            "" if state.get("enabled") else "not started at boot",
            "runs from an older definition, the next run of the site restarts it" if state.get("stale") else "",
        ]
        lines.append(
            f"  {unit.removesuffix('.service'):<16} {state['state']:<12} {', '.join(filter(None, notes))}".rstrip()
        )
    if found.get("linger") is False:
        lines.append("  linger is off: the units die with the last session")
    for rail in (found.get("fabric") or {}).get("rails", []):
        moved = f", {text}" if (text := moved_text(rail)) else ""
        lines.append(f"  fabric           {rail.get('netdev')} GID index {rail.get('gid_index')}{moved}")
    lines += [f"  not ours         {stranger}" for stranger in found.get("strangers", [])]
    lines += [f"  problem          {problem}" for problem in found.get("problems", [])]
    for event in found.get("events", []):
        if event.get("what") in ("stopped", "halted", "watchdog", "guard"):
            unit = str(event.get("unit", "")).removesuffix(".service")
            lines.append(
                f"  {_ago(now - float(event['time'])):>9} ago    {unit} {event['what']}: {event.get('why', '')}"
            )
    return lines


def screen(hosts: Mapping[str, Mapping[str, Any]], now: float | None = None) -> str:
    """The whole; hosts: inventory name to the registered result of status_info."""
    now = time.time() if now is None else now
    found = {name: result.get("status") or {} for name, result in hosts.items()}
    lines: list[str] = []
    head = next((one for one in found.values() if one.get("is_head")), None)
    lines += _head_lines(head) if head else ["the head says nothing, so whether it serves is not known"]
    for name, one in found.items():
        lines.append("")
        if one:
            lines += _node_lines(name, one, now)
        else:
            result = hosts[name]
            why = "not reached" if result.get("unreachable") else "no answer"
            said = result.get("module_stderr") or result.get("exception") or result.get("msg") or ""
            lines.append(f"{name}: {why}: {' '.join(str(said).split())[-300:]}")
    return "\n".join(lines)
