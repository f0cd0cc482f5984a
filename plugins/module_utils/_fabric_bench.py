# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Runs perftest or iperf3 over each rail: servers that end by themselves on one host, clients on the other."""

# Programs and tests call this as well, without Ansible's module object.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from . import _fabric_reach
from . import _fabric_verdict as verdict
from ._roce_ip import contains

_PATH = "/usr/local/bin:/usr/bin:/bin"
_ENVIRON = {"PATH": _PATH, "LC_ALL": "C"}
# A server that no client comes to must not stay for ever.
SERVER_S, CLIENT_S, LISTEN_S = 300, 60, 10


def tools(root: str = "/") -> dict[str, bool]:
    """What this host has. perftest needs the kernel's verbs devices beside its programs."""

    def has(name: str) -> bool:
        return shutil.which(name, path=_PATH) is not None

    verbs = any(Path(root, "dev/infiniband").glob("uverbs*"))
    return {"perftest": verbs and has("ib_write_bw") and has("ib_write_lat"), "iperf3": has("iperf3")}


def commands(method: str, rail: Mapping[str, Any], port: int, peer: str = "", seconds: int = 5) -> list[list[str]]:
    """The programs for one rail in their order; without a peer those of the server."""
    if method == "iperf3":
        own = ["iperf3", "--bind", rail["address"], "--port", str(port)]
        if not peer:
            return [[*own, "--server", "--one-off"]]
        return [[*own, "--client", peer, "--json", "--time", str(seconds), "--parallel", "4"]]
    place = ["-d", rail["device"], "-i", str(rail["port"]), "-x", str(rail["gid_index"]), "-F"]
    bandwidth = ["ib_write_bw", *place, "-p", str(port), "--report_gbits", "-D", str(seconds)]
    latency = ["ib_write_lat", *place, "-p", str(port + 1), "-n", "1000"]
    return [[*line, peer] if peer else line for line in (bandwidth, latency)]


def ports_of(method: str, number: int, base: int) -> list[int]:
    """The TCP ports that a rail's servers listen on."""
    return [base + 2 * number + step for step in range(1 if method == "iperf3" else 2)]


def serve(method: str, rails: Sequence[Mapping[str, Any]], base: int) -> list[int]:
    """Start the servers of all rails; returns their ports once all of them listen."""
    ports = []
    for number, rail in enumerate(rails):
        for argv in commands(method, rail, base + 2 * number):
            subprocess.Popen(
                ["timeout", str(SERVER_S), *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_ENVIRON,
                start_new_session=True,
            )
        ports += ports_of(method, number, base)
    deadline = time.monotonic() + LISTEN_S
    while missing := sorted(set(ports) - listening()):
        if time.monotonic() > deadline:
            raise verdict.VerdictError(f"servers of {method} do not listen on {missing} after {LISTEN_S} s")
        time.sleep(0.1)
    return ports


def listening() -> set[int]:
    """The TCP ports that something listens on."""
    ports = set()
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def measure(
    method: str,
    rails: Sequence[Mapping[str, Any]],
    peers: Sequence[str],
    base: int,
    seconds: int,
    bounds: tuple[int, float] = (0, 0),
) -> list[dict[str, Any]]:
    """One rail after another, so that none takes from another's bandwidth. bounds: least Mb/s and most µs, or 0."""
    results = []
    for number, rail in enumerate(rails):
        for peer in peers:
            if rail["subnet"] and contains(rail["subnet"], peer):
                way = {"peer": peer, **{key: rail[key] for key in ("address", "netdev", "device")}}
                try:
                    idle_us = _idle_us(rail, peer)
                    outputs = [_client(argv) for argv in commands(method, rail, base + 2 * number, peer, seconds)]
                    results.append(way | _judge(method, rail, outputs, idle_us, bounds))
                except verdict.VerdictError as error:
                    results.append(way | {"sound": False, "error": str(error)})
    return results


def _idle_us(rail: Mapping[str, Any], peer: str) -> float:
    """The round trip of a ping before anything fills the link; it must pass for anything else to be worth a try."""
    (found,) = _fabric_reach.reach([cast(Any, rail)], [peer])
    if not found["reached"]:
        raise verdict.VerdictError(f"not reached: {found['reason']} ({found['method']})")
    return float(found["rtt_ms"] or 0) * 1000


def _client(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=CLIENT_S, check=False, env=_ENVIRON)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise verdict.VerdictError(f"{argv[0]}: {error}") from None
    # iperf3 --json says what went wrong on its standard output.
    if done.returncode and not done.stdout.lstrip().startswith("{"):
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit {done.returncode}"]
        raise verdict.VerdictError(f"{argv[0]}: {lines[-1]}")
    return done.stdout


def _judge(
    method: str, rail: Mapping[str, Any], outputs: Sequence[str], idle_us: float, bounds: tuple[int, float]
) -> dict[str, Any]:
    if method == "iperf3":
        mbps, latency = verdict.iperf3_mbps(outputs[0]), idle_us
    else:
        mbps, latency = verdict.perftest_mbps(outputs[0]), verdict.perftest_us(outputs[1])
    return verdict.verdict(method, rail, mbps, latency, *bounds)
