# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Without Ray nothing tells a rank that the head's rank has gone: it would wait for ever in a collective operation.

Each rank holds a connection to the store where the ranks met, in the head's process. When it ends, or when nobody
accepts connections there any more, the rank has to start anew with the others.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

ESTABLISHED = "01"
# The other side has closed, ours has not: a rank that still waits in a collective operation.
CLOSE_WAIT = "08"
GONE_S = 3.0
SILENT_S = 30.0


def states(tables: str, address: str, port: int) -> set[str]:
    """States of the connections to an IPv4 address and port in the texts of /proc/net/tcp and tcp6.

    PyTorch's sockets are of the second kind, with the address mapped into IPv6.
    """
    number = ipaddress.IPv4Address(address).packed[::-1].hex().upper()
    wanted = (f"{number}:{port:04X}", f"0000000000000000FFFF0000{number}:{port:04X}")
    rows = (line.split() for line in tables.splitlines())
    return {row[3] for row in rows if len(row) > 3 and row[2] in wanted}


@dataclass
class RankWatch:
    """Remembers whether the rank had met the others, and since when it has lost them."""

    met: bool = False
    lost_at: float | None = None
    silent_at: float | None = None

    def observe(self, now: float, running: bool, seen: set[str], reachable: bool) -> str:
        """The reason to end the rank now, or an empty text."""
        if not running:
            self.met, self.lost_at, self.silent_at = False, None, None
            return ""
        open_connection = ESTABLISHED in seen
        self.met = self.met or open_connection or CLOSE_WAIT in seen
        if not self.met:
            return ""
        self.lost_at = None if open_connection else now if self.lost_at is None else self.lost_at
        self.silent_at = None if reachable else now if self.silent_at is None else self.silent_at
        if self.lost_at is not None and now - self.lost_at >= GONE_S:
            return "the connection to the head's rank has ended"
        if self.silent_at is not None and now - self.silent_at >= SILENT_S:
            return f"the head's rank accepts no connection for {now - self.silent_at:.0f} s"
        return ""
