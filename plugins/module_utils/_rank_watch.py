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
GONE_S = 3.0
SILENT_S = 30.0


def connected(table: str, address: str, port: int) -> bool:
    """Whether the text of /proc/net/tcp holds an open connection to an IPv4 address and port."""
    wanted = f"{ipaddress.IPv4Address(address).packed[::-1].hex().upper()}:{port:04X}"
    rows = (line.split() for line in table.splitlines()[1:])
    return any(len(row) > 3 and row[2] == wanted and row[3] == ESTABLISHED for row in rows)


@dataclass
class RankWatch:
    """Remembers whether the rank had met the others, and since when it has lost them."""

    met: bool = False
    lost_at: float | None = None
    silent_at: float | None = None

    def observe(self, now: float, running: bool, open_connection: bool, reachable: bool) -> str:
        """The reason to end the rank now, or an empty text."""
        if not running:
            self.met, self.lost_at, self.silent_at = False, None, None
            return ""
        self.met = self.met or open_connection
        if not self.met:
            return ""
        self.lost_at = None if open_connection else now if self.lost_at is None else self.lost_at
        self.silent_at = None if reachable else now if self.silent_at is None else self.silent_at
        if self.lost_at is not None and now - self.lost_at >= GONE_S:
            return "the connection to the head's rank has ended"
        if self.silent_at is not None and now - self.silent_at >= SILENT_S:
            return f"the head's rank accepts no connection for {now - self.silent_at:.0f} s"
        return ""
