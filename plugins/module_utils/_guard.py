# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""When a node is so short of memory that its engine must be ended before the machine freezes: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Guard:
    """Acts when less than `floor` bytes have been available for `seconds` without a break."""

    floor: int
    seconds: float
    below_at: float | None = None

    def observe(self, now: float, available: int) -> bool:
        """Whether to act now. After it said so it starts anew, so that one shortage is acted upon once a while."""
        if available >= self.floor:
            self.below_at = None
            return False
        if self.below_at is None:
            self.below_at = now
        if now - self.below_at < self.seconds:
            return False
        self.below_at = None
        return True
