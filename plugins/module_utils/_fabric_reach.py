# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Whether peers are reached over each rail, by packets as long as the MTU that must not be fragmented.

Tested by `ping -M do`, which an ordinary user may run: it uses an ICMP datagram socket where net.ipv4.ping_group_range
allows that, and its own privilege elsewhere. A ping leaves by the rail's interface and address, so an answer over the
management network counts as none.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

from . import _roce_ip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ._roce_types import Problem, Rail

# IPv4 and ICMP headers, which the size given to ping does not count.
HEADERS = 28
COUNT, TIMEOUT_S = 3, 5
_RTT = re.compile(r"= [\d.]+/([\d.]+)/")
_TRANSMITTED = re.compile(r"(\d+) packets transmitted, (\d+) received")
_FRAGMENT = re.compile(r"[Mm]essage too long|Frag needed|mtu ?= ?\d+")


def pairs(rails: Sequence[Rail], peers: Sequence[str]) -> list[tuple[Rail, str]]:
    """Each peer's address with the rail it lies on; addresses of this host and of no rail are left out."""
    own = {rail["address"] for rail in rails}
    return [
        (rail, peer)
        for peer in dict.fromkeys(peers)
        for rail in rails
        if peer not in own and rail["subnet"] and _roce_ip.contains(rail["subnet"], peer)
    ]


def command(rail: Rail, peer: str) -> list[str]:
    """The ping of one peer over one rail."""
    size = max((rail["mtu"] or 1500) - HEADERS, 0)
    return [
        *("ping", "-n", "-q", "-c", str(COUNT), "-i", "0.2", "-W", "1", "-w", str(TIMEOUT_S)),
        *("-M", "do", "-s", str(size), "-I", rail["address"], peer),
    ]


def parse(output: str, errors: str) -> dict[str, Any]:
    """What a ping's output says: reached only where no packet was lost for good."""
    counts = _TRANSMITTED.search(output)
    rtt = _RTT.search(output)
    sent, received = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    text = f"{output}\n{errors}"
    fragment = bool(_FRAGMENT.search(text))
    reason = ""
    if not received:
        last = [line for line in errors.strip().splitlines() if line]
        reason = "packets of the full MTU do not pass" if fragment else (last[-1] if last else "no answer")
    return {
        "reached": received > 0,
        "sent": sent,
        "received": received,
        "rtt_ms": float(rtt[1]) if rtt else None,
        "too_long": fragment,
        "reason": reason,
    }


def reach(rails: Sequence[Rail], peers: Sequence[str]) -> list[dict[str, Any]]:
    """All pings at once; one entry for each peer and rail."""
    wanted = pairs(rails, peers)
    if not wanted:
        return []
    with ThreadPoolExecutor(max_workers=min(len(wanted), 32)) as pool:
        return list(pool.map(lambda pair: _ping(*pair), wanted))


def _ping(rail: Rail, peer: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "peer": peer,
        "address": rail["address"],
        "netdev": rail["netdev"],
        "mtu": rail["mtu"],
        "method": f"ping -M do -s {max((rail['mtu'] or 1500) - HEADERS, 0)}",
    }
    argv = command(rail, peer)
    if shutil.which("ping") is None:
        return entry | parse("", "ping is not installed (package iputils-ping)")
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=TIMEOUT_S + 5, check=False, env={"LC_ALL": "C", "PATH": _PATH}
        )
    except subprocess.TimeoutExpired:
        return entry | parse("", f"ping did not end within {TIMEOUT_S + 5} s")
    return entry | parse(done.stdout, done.stderr)


_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def as_line(entry: Mapping[str, Any]) -> str:
    """One result for a person."""
    way = f"{entry['address']} ({entry['netdev']}) → {entry['peer']}"
    if not entry["reached"]:
        return f"{way}: NOT reached: {entry['reason']} ({entry['method']})"
    return f"{way}: {entry['received']}/{entry['sent']} of MTU {entry['mtu']}, {entry['rtt_ms']} ms"


def errors_of(host: str, found: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """The unreached peers as errors."""
    from ._roce_problem import problem

    result = []
    for entry in found:
        if entry["reached"]:
            continue
        cure = "check the cable, the peer's address and firewall (`fabric-env check` repeats this test)"
        if entry["too_long"]:
            cure = "set the same MTU on both ends and on the switch (playbooks/fabric.yml prints a netplan file)"
        subject = f"peer {entry['peer']} over {entry['netdev']}"
        found_text = f"{entry['reason']}, tested by {entry['method']} from {entry['address']}"
        expected = f"answers to packets of MTU {entry['mtu']}"
        result.append(problem(host, subject, found_text, expected, cure, "unreached"))
    return result


def probe_ports(peers: Sequence[str], ports: Sequence[int], timeout_s: float = 1.5) -> list[dict[str, Any]]:
    """What a connection to each port of each peer meets. A refusal is as good as an open port: it passed."""
    wanted = [(peer, port) for peer in dict.fromkeys(peers) for port in dict.fromkeys(ports)]
    if not wanted:
        return []
    with ThreadPoolExecutor(max_workers=min(len(wanted), 64)) as pool:
        return list(pool.map(lambda pair: _connect(pair[0], pair[1], timeout_s), wanted))


def _connect(peer: str, port: int, timeout_s: float) -> dict[str, Any]:
    try:
        with socket.create_connection((peer, port), timeout=timeout_s):
            answer = "open"
    except ConnectionRefusedError:
        answer = "refused"
    except TimeoutError:
        answer = "silent"
    except OSError as error:
        answer = error.strerror or "error"
    return {"peer": peer, "port": port, "answer": answer, "passes": answer in ("open", "refused")}


def port_errors(host: str, found: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """Ports of peers from which no answer came at all, one error for each peer."""
    from ._roce_problem import problem

    result = []
    for peer in dict.fromkeys(entry["peer"] for entry in found if not entry["passes"]):
        entries = [entry for entry in found if entry["peer"] == peer and not entry["passes"]]
        ports = ", ".join(f"{entry['port']} ({entry['answer']})" for entry in entries)
        cure = "let the fabric's subnet through the peer's firewall as a whole, for example: sudo ufw allow from SUBNET"
        text = f"no answer on TCP {ports}, tested by connecting from {host}"
        result.append(problem(host, f"firewall of peer {peer}", text, "open or refused", cure, "firewall"))
    return result
