# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Whether peers are reached over each rail, by packets as long as the MTU that must not be fragmented.

Tested by `ping -M do`, which an ordinary user may run where net.ipv4.ping_group_range or the program's capability lets
him. Elsewhere by a UDP datagram of that length to a port where nobody listens: the peer's refusal says that it came
whole. Either leaves from the rail's own address. Each result names its method.
"""

# Programs and tests call this as well, without Ansible's module object.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import errno
import re
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from . import _roce_ip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ._roce_types import Problem, Rail

# IPv4 and ICMP (or UDP) headers, which the size given to ping does not count.
HEADERS, SMALL = 28, 56
COUNT, TIMEOUT_S = 3, 5
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_RTT = re.compile(r"= [\d.]+/([\d.]+)/")
_COUNTS = re.compile(r"(\d+) packets transmitted, (\d+) received")
_TOO_LONG = re.compile(r"[Mm]essage too long|[Ff]rag(mentation)? needed")
_FORBIDDEN = re.compile(r"Operation not permitted|Permission denied|missing cap_net_raw|is not installed")
# Of traceroute's range: nobody listens there.
_UDP_PORT = 33481
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2


def pairs(rails: Sequence[Rail], peers: Sequence[str]) -> list[tuple[Rail, str]]:
    """Each peer's address with the rail it lies on; addresses of this host and of no rail are left out."""
    own = {rail["address"] for rail in rails}
    return [
        (rail, peer)
        for peer in dict.fromkeys(peers)
        for rail in rails
        if peer not in own and rail["subnet"] and _roce_ip.contains(rail["subnet"], peer)
    ]


def command(address: str, peer: str, size: int) -> list[str]:
    """The ping of one peer from one address."""
    return [
        *("ping", "-n", "-c", str(COUNT), "-i", "0.2", "-W", "1", "-w", str(TIMEOUT_S)),
        *("-M", "do", "-s", str(size), "-I", address, peer),
    ]


def parse(output: str, errors: str) -> dict[str, Any]:
    """What a ping's output says."""
    counts, rtt = _COUNTS.search(output), _RTT.search(output)
    sent, received = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    lines = [line for line in [*errors.splitlines(), *output.splitlines()] if _says_why(line)]
    return {
        "reached": received > 0,
        "sent": sent,
        "received": received,
        "rtt_ms": float(rtt[1]) if rtt else None,
        "too_long": bool(_TOO_LONG.search(f"{output}\n{errors}")),
        "forbidden": bool(_FORBIDDEN.search(errors)) and not counts,
        "reason": "" if received else (lines[0].strip() if lines else "no answer"),
    }


def _says_why(line: str) -> bool:
    return bool(line.startswith("ping: ") or re.search(r"Unreachable|Frag needed|prohibited", line))


def reach(rails: Sequence[Rail], peers: Sequence[str]) -> list[dict[str, Any]]:
    """All peers at once; one entry for each peer and rail."""
    wanted = pairs(rails, peers)
    if not wanted:
        return []
    with ThreadPoolExecutor(max_workers=min(len(wanted), 32)) as pool:
        return list(pool.map(lambda pair: _one(*pair), wanted))


def _one(rail: Rail, peer: str) -> dict[str, Any]:
    size = max((rail["mtu"] or 1500) - HEADERS, SMALL)
    test, method = _ping, f"ping -M do -s {size}"
    found = test(rail["address"], peer, size)
    if found["forbidden"]:
        test, method = _datagram, f"UDP datagram of {size} bytes with DF, since {found['reason']}"
        found = test(rail["address"], peer, size)
    if not found["reached"] and not found["too_long"] and test(rail["address"], peer, SMALL)["reached"]:
        found |= {"too_long": True, "reason": f"packets of {rail['mtu']} bytes do not pass, small ones do"}
    del found["forbidden"]
    way = {"peer": peer, "address": rail["address"], "netdev": rail["netdev"], "mtu": rail["mtu"], "method": method}
    return way | found


def _ping(address: str, peer: str, size: int) -> dict[str, Any]:
    if shutil.which("ping", path=_PATH) is None:
        return parse("", "ping: is not installed")
    argv, limit = command(address, peer, size), TIMEOUT_S + 5
    environ = {"LC_ALL": "C", "PATH": _PATH}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit, check=False, env=environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        return parse("", f"ping: {error}")
    return parse(done.stdout, done.stderr)


def _datagram(address: str, peer: str, size: int) -> dict[str, Any]:
    found = parse("", "")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(1)
        try:
            channel.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            channel.bind((address, 0))
            channel.connect((peer, _UDP_PORT))
        except OSError as error:
            return found | {"reason": error.strerror or str(error)}
        for sent in range(1, COUNT + 1):
            start = time.monotonic()
            try:
                channel.send(bytes(size))
                channel.recv(1)
            except ConnectionRefusedError:
                rtt = round((time.monotonic() - start) * 1000, 3)
                return found | {"reached": True, "sent": sent, "received": 1, "rtt_ms": rtt, "reason": ""}
            except TimeoutError:
                found["sent"] = sent
            except OSError as error:
                too_long = error.errno == errno.EMSGSIZE
                return found | {"sent": sent, "too_long": too_long, "reason": error.strerror or str(error)}
    return found


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
            cure = (
                "set the same MTU on both ends and on the switch (playbooks/fabric.yml --check prints a netplan file)"
            )
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
