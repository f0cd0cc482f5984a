# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The journal of a unit, as far as this user may read it."""

from __future__ import annotations

import subprocess

TIMEOUT_S = 20


def lines(scope: str, unit: str, last: int, since: float = 0) -> list[str]:
    """The last lines that a unit wrote, without systemd's own words; nothing where they cannot be read."""
    which = "--user-unit" if scope == "user" else "--unit"
    command = ["/usr/bin/journalctl", "--no-pager", "-q", "-o", "cat", "-n", str(last), which, unit]
    if since:
        command += ["--since", f"@{since:.0f}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode(errors="replace").splitlines()
