# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Whether this host's firewall lets its peers reach Ray and NCCL over the fabric.

Ray's fixed ports are named by the caller; NCCL and Ray's workers listen on ephemeral ports as well, so the peers must
be let through as a whole. RDMA itself passes no firewall.
"""

# Programs and tests call this as well, without Ansible's module object.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from . import _fabric_nft, _fabric_ufw, _roce_ip
from ._roce_problem import problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ._fabric_nft import Packet
    from ._roce_types import Problem

    Verdict = Callable[[Packet], str]

# The kernel's default net.ipv4.ip_local_port_range.
EPHEMERAL = (32768, 60999)
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# A captured tree holds these beside its sys/.
CAPTURED_UFW, CAPTURED_NFT = "ufw-status.txt", "nft-ruleset.json"
FAULT = "firewall"
# The role `firewall` writes it, after this was judged.
OWN_TABLE = "dgx_spark_vllm"


def blocked(verdict: Verdict, edges: set[int], way: Packet, ports: Sequence[int]) -> dict[str, list[str]]:
    """The ports that are dropped, and those nobody can tell of: named ones, and spans of the ephemeral range."""
    first, last = EPHEMERAL
    marks = sorted({first, *(edge for edge in edges if first < edge <= last)})
    spans = list(zip(marks, [mark - 1 for mark in marks[1:]] + [last], strict=True))
    result: dict[str, list[str]] = {"drop": [], "unknown": []}
    for start, end in [(port, port) for port in ports] + spans:
        answer = verdict({**way, "port": start})
        if answer in result:
            result[answer].append(str(start) if start == end else f"{start}-{end}")
    return {answer: _joined(found) for answer, found in result.items()}


def _joined(spans: list[str]) -> list[str]:
    """Spans that touch as one."""
    result: list[str] = []
    for span in spans:
        first, _dash, last = span.partition("-")
        if result and "-" in result[-1] and int(result[-1].partition("-")[2]) + 1 == int(first):
            result[-1] = f"{result[-1].partition('-')[0]}-{last or first}"
        else:
            result.append(span)
    return result


def judge(
    host: str, ufw_text: str, nft_text: str, ways: Sequence[tuple[str, str, str]], ports: Sequence[int]
) -> tuple[list[Problem], list[Problem]]:
    """Errors and warnings. `ways`: for each rail the peers' subnet, this host's interface, and its address.

    Our own table is not counted: where it blocks, it dates from another fabric, and the role `firewall` renews it.
    """
    ufw, ruleset = _fabric_ufw.parse(ufw_text), _fabric_nft.Ruleset(nft_text, OWN_TABLE)

    def by_ufw(packet: Packet) -> str:
        return _fabric_ufw.verdict(ufw, packet)

    errors, warnings = [], []
    for subnet, netdev, address in ways:
        way: Packet = {"source": _a_peer(subnet, address), "destination": address, "interface": netdev, "port": 0}
        judges: list[tuple[str, Verdict, set[int], str]] = [
            ("ufw", by_ufw, _fabric_ufw.edges(ufw), f"sudo ufw allow in on {netdev} from {subnet}"),
            (
                "nftables",
                ruleset.verdict,
                _fabric_nft.edges(ruleset),
                f'in the input chain: iifname "{netdev}" ip saddr {subnet} accept',
            ),
        ]
        for tool, verdict, edges, rule in judges:
            found = blocked(verdict, edges, way, ports)
            subject = f"firewall {tool} on {netdev}"
            expected = f"all TCP ports let through from {subnet} on {netdev}"
            cure = f"let the fabric through as a whole: {rule}"
            if found["drop"]:
                text = f"TCP {', '.join(found['drop'])} is blocked from {subnet}"
                errors.append(problem(host, subject, text, expected, cure, FAULT))
            if found["unknown"]:
                text = f"rules of a kind that is not understood may block TCP {', '.join(found['unknown'])}"
                warnings.append(problem(host, subject, text, expected, cure))
    return errors, warnings


def own_table_stale(nft_text: str, ways: Sequence[tuple[str, str, str]], ports: Sequence[int]) -> bool:
    """Whether our own table keeps out what it should let in: the fabric has got other addresses since."""
    every, others = _fabric_nft.Ruleset(nft_text), _fabric_nft.Ruleset(nft_text, OWN_TABLE)
    for subnet, netdev, address in ways:
        way: Packet = {"source": _a_peer(subnet, address), "destination": address, "interface": netdev, "port": 0}
        found = [blocked(rules.verdict, _fabric_nft.edges(rules), way, ports)["drop"] for rules in (every, others)]
        if found[0] and not found[1]:
            return True
    return False


def _a_peer(subnet: str, own: str) -> str:
    """An address inside the subnet that stands for the peers."""
    number, prefix = _roce_ip.parse_subnet(subnet)
    first = number + (1 if prefix < 31 else 0)
    return _roce_ip.to_text(first if _roce_ip.to_text(first) != own else first + 1)


def judge_live(host: str, root: str, ways: Sequence[tuple[str, str, str]], ports: Sequence[int]) -> dict[str, Any]:
    """Read this host's firewalls, or those of a captured tree, and judge them."""
    ufw_text, ufw_note = _read(root, CAPTURED_UFW, ["ufw", "status", "verbose"])
    nft_text, nft_note = _read(root, CAPTURED_NFT, ["nft", "-j", "list", "ruleset"])
    errors, warnings = judge(host, ufw_text, nft_text, ways, ports)
    enabled = _ufw_enabled(root)
    if enabled and ufw_note:
        text = f"ufw is enabled, but its rules could not be read: {ufw_note}"
        warnings.append(problem(host, "firewall ufw", text, "rules that can be checked", "run the check with become"))
    return {
        "ufw": {"enabled": enabled, "read": not ufw_note, "note": ufw_note},
        "nftables": {"read": not nft_note, "note": nft_note},
        "own_table_stale": own_table_stale(nft_text, ways, ports),
        "errors": errors,
        "warnings": warnings,
    }


def _ufw_enabled(root: str) -> bool:
    try:
        text = (Path(root) / "etc/ufw/ufw.conf").read_text(encoding="utf-8")
    except OSError:
        return False
    return any(line.strip().lower() == "enabled=yes" for line in text.splitlines())


def _read(root: str, captured: str, argv: list[str]) -> tuple[str, str]:
    """A tool's output, and why there is none."""
    if root != "/":
        path = Path(root) / captured
        return (path.read_text(encoding="utf-8"), "") if path.exists() else ("", "not captured")
    program = shutil.which(argv[0], path=_PATH)
    if program is None:
        return "", "not installed"
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env={"PATH": _PATH, "LC_ALL": "C.UTF-8"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return "", lines[0] if lines else f"exit {done.returncode}"
    return done.stdout, ""
