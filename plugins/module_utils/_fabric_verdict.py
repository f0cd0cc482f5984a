# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What a rail should give, what perftest and iperf3 say it gives, and the verdict. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

# A Spark's function has four PCIe 5.0 lanes; 98 to 112 Gb/s were measured over one, 161 to 196 over both twins.
LANE_MBPS = 25_000
# TCP has a CPU in its way; what it reaches says that the link is sound, not how fast RDMA is over it.
SHARE = {"perftest": 0.9, "iperf3": 0.4}
LATENCY_US = {"perftest": 10.0, "iperf3": 500.0}
_NUMBERS = re.compile(r"^\s*\d+(?:\s+[\d.]+){3,}\s*$")


class VerdictError(Exception):
    """An output that holds no measurement; the message quotes its end."""


def expected_mbps(rail: Mapping[str, Any]) -> int | None:
    """What the slower of link and PCIe lets through; None where neither is known."""
    known = [rail["speed_mbps"]] if rail["speed_mbps"] else []
    if rail["pcie_width"]:
        known.append(rail["pcie_width"] * LANE_MBPS)
    return min(known) if known else None


def perftest_mbps(output: str) -> float:
    """The average of `ib_write_bw --report_gbits`."""
    return float(_last_row(output)[3]) * 1000


def perftest_us(output: str) -> float:
    """The typical latency of `ib_write_lat`."""
    return float(_last_row(output)[4])


def _last_row(output: str) -> list[str]:
    rows = [line.split() for line in output.splitlines() if _NUMBERS.match(line)]
    if not rows or len(rows[-1]) < 5:
        raise VerdictError(f"no measurement in: {_end(output)}")
    return rows[-1]


def iperf3_mbps(output: str) -> float:
    """Throughput as it was received, of `iperf3 --json`."""
    try:
        data = json.loads(output)
        if data.get("error"):
            raise VerdictError(f"iperf3: {data['error']}")
        return float(data["end"]["sum_received"]["bits_per_second"]) / 1e6
    except (ValueError, KeyError, TypeError) as error:
        raise VerdictError(f"no measurement in: {_end(output)}") from error


def _end(output: str) -> str:
    return " | ".join(output.strip().splitlines()[-3:])[-300:] or "an empty output"


def verdict(
    method: str, rail: Mapping[str, Any], mbps: float, latency_us: float, floor_mbps: int = 0, most_us: float = 0
) -> dict[str, Any]:
    """The numbers beside what they should be. Bounds given by the inventory stand in for those derived here."""
    wanted = expected_mbps(rail)
    floor = floor_mbps or (int(wanted * SHARE[method]) if wanted else 0)
    most_us = most_us or LATENCY_US[method]
    reasons = []
    if mbps < floor:
        reasons.append(f"{mbps / 1000:.1f} Gb/s, at least {floor / 1000:g} expected")
    if latency_us > most_us:
        reasons.append(f"{latency_us:.1f} µs, at most {most_us:g} expected")
    return {
        "method": method,
        "mbps": round(mbps, 1),
        "latency_us": round(latency_us, 2),
        "expected_mbps": wanted,
        "floor_mbps": floor,
        "most_us": most_us,
        "sound": not reasons,
        "reason": "; ".join(reasons),
    }


def table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each rail of each pair."""
    lines = []
    for entry in results:
        way = f"{entry['address']} ({entry['netdev']}, {entry['device']}) → {entry['peer']}"
        if entry.get("error"):
            lines.append(f"{way}: FAILED: {entry['error']}")
            continue
        wanted = "?" if entry["expected_mbps"] is None else f"{entry['expected_mbps'] / 1000:g}"
        said = "sound" if entry["sound"] else f"SLOW: {entry['reason']}"
        numbers = f"{entry['mbps'] / 1000:.1f} of {wanted} Gb/s, {entry['latency_us']:g} µs ({entry['method']})"
        lines.append(f"{way}: {numbers}: {said}")
    return lines


def choose(tools: Mapping[str, Mapping[str, bool]]) -> tuple[str, str]:
    """The best method that every host has, and else why there is none."""
    for method in ("perftest", "iperf3"):
        if all(own[method] for own in tools.values()):
            return method, ""
    lacking = [host for host, own in tools.items() if not own["iperf3"]]
    return "", f"neither perftest nor iperf3 is on every host ({', '.join(lacking)} lack iperf3)"
