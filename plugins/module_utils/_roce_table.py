# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Tables that a person reads: the GID rows of ports, with the chosen ones marked, and the addresses beside them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._roce_types import Facts, Port, Rail

HEADER = ("", "device", "port", "state", "index", "type", "gid or address", "netdev")


def align(lines: list[tuple[str, ...]]) -> str:
    """Columns of equal width, without blanks at the line ends."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def gid_table(ports: list[Port], rails: list[Rail] | None = None) -> str:
    """All rows of the ports; `>` marks the row each rail uses."""
    chosen = {(rail["device"], rail["port"], rail["gid_index"]) for rail in rails or []}
    lines: list[tuple[str, ...]] = [HEADER]
    for port in ports:
        place = (port["device"], str(port["port"]), port["state"] or "?")
        if not port["rows"]:
            lines.append(("", *place, "-", "", "no GID at all", ",".join(port["netdevs"])))
        for row in port["rows"]:
            mark = ">" if (port["device"], port["port"], row["index"]) in chosen else ""
            kind = row["type"] or "unreadable"
            lines.append((mark, *place, str(row["index"]), kind, row["address"] or row["gid"], row["netdev"]))
    return align(lines) if len(lines) > 1 else "no RDMA device"


def address_table(facts: Facts) -> str:
    """The addresses of all interfaces, one line each interface."""
    lines = []
    for name, netdev in facts["netdevs"].items():
        entries = [
            entry["address"] + (f"/{entry['prefix']}" if entry["prefix"] is not None else "")
            for entry in netdev["addresses"]
        ]
        lines.append(f"{name} {' '.join(entries) or 'no IPv4 address'}")
    return ", ".join(lines) or "no address at all"
