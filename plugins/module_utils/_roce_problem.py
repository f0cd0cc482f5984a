# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Errors and warnings of the fabric, and the words programs know them by."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._roce_types import Problem

CONFIG = "config"  # the input itself is wrong
NO_DEVICE = "no-device"  # no RDMA device, or none behind the address
PORT_DOWN = "port-down"  # the RDMA port or its interface has no link
NO_ADDRESS = "no-address"  # the interface lacks the address, or any in the subnet
NO_ROW = "no-row"  # the GID table has no RoCE v2 row of the address
NO_COMMON_INDEX = "no-common-index"  # one index was demanded, or NCCL cannot be led to the right rows
PIN = "pin"  # a pin contradicts the live table
AMBIGUOUS = "ambiguous"  # two rails in one subnet and the like: nothing this code may choose
WARNING = "warning"

# What time, a cable or a network daemon may yet bring; the rest stays wrong however long one waits.
TRANSIENT = frozenset({PORT_DOWN, NO_ADDRESS, NO_ROW})


def problem(host: str, subject: str, found: str, expected: str, cure: str, fault: str = WARNING) -> Problem:
    """One error or warning."""
    return {"host": host, "subject": subject, "found": found, "expected": expected, "cure": cure, "fault": fault}


def as_text(entry: Problem) -> str:
    """One line and, where what was found is a table, its lines below."""
    found = entry["found"]
    if "\n" in found:
        found = "\n  " + found.replace("\n", "\n  ") + "\n "
    return f"{entry['host']}: {entry['subject']}: found {found}; expected {entry['expected']}; cure: {entry['cure']}"
