# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Locked memory for a user's units: the limit that PAM gives to the user's systemd, above which no unit can go.

`LimitMEMLOCK=infinity` in a user unit is clamped to it without a word, so what counts is the running process.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path

from ._node_proc import Process

LIMITS_FILE = Path("/etc/security/limits.d/90-dgx-spark-vllm.conf")
SSH_FILE = Path("/etc/systemd/system/ssh.service.d/50-dgx-spark-vllm.conf")
SSH_TEXT = """# Written by the collection dgx_spark.vllm.
# Short of memory, the kernel takes the engine before a way to log in.
[Service]
OOMScoreAdjust=-500
"""


def limits_text(user: str) -> str:
    """The file for PAM."""
    return (
        "# Written by the collection dgx_spark.vllm: RDMA registers, that is locks, the memory that it sends from.\n"
        f"{user} - memlock unlimited\n"
    )


def memlock_hard(limits: str) -> int | None:
    """The hard limit in bytes out of /proc/PID/limits, None for unlimited."""
    for line in limits.splitlines():
        if line.startswith("Max locked memory"):
            value = line.split()[-2]
            return None if value == "unlimited" else int(value)
    raise ValueError("no line about locked memory in the limits of the process")


def manager_of(uid: int, processes: Iterable[Process]) -> int:
    """The user's systemd, 0 where none runs."""
    return min(
        (p.pid for p in processes if p.uid == uid and p.command.startswith("/usr/lib/systemd/systemd --user")),
        default=0,
    )


def ours(uid: int, processes: Iterable[Process]) -> list[Process]:
    """Processes of our units that a restart of the user's systemd would end."""
    return [p for p in processes if p.uid == uid and p.unit.startswith("vllm-")]


def can_raise() -> bool:
    """Whether this platform lets root lift the limit at all, tried in a child.

    Where it does not, PAM would refuse every login of the user once the file asks for it.
    """
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (OSError, ValueError):
            os._exit(1)
        os._exit(0)
    _unused, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0
