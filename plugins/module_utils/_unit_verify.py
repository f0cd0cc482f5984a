# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""systemd's own opinion of unit files that are not in their place yet."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

VERIFY_TIMEOUT_S = 60


def complaints(units: Mapping[str, bytes], scope: str) -> list[str]:
    """What `systemd-analyze verify` says of the units (name to content), one line each; empty where it is content.

    It returns 0 for unknown keys and only prints them, so every line counts that names one of the units.
    """
    program = shutil.which("systemd-analyze", path="/usr/bin:/bin")
    if program is None:
        return ["systemd-analyze was not found in /usr/bin: install the package systemd"]
    with tempfile.TemporaryDirectory(prefix="vllm-units-") as name:
        folder = Path(name)
        for unit, content in units.items():
            (folder / unit).write_bytes(content)
        manager = ["--user"] if scope == "user" else ["--system"]
        paths = [str(folder / unit) for unit in units]
        done = subprocess.run(
            [program, *manager, "--man=no", "--recursive-errors=no", "verify", *paths],
            capture_output=True,
            text=True,
            timeout=VERIFY_TIMEOUT_S,
            check=False,
        )
        lines = [line.replace(f"{folder}/", "") for line in done.stderr.splitlines() if line.strip()]
    ours = [line for line in lines if any(unit in line for unit in units)]
    return ours or ([f"systemd-analyze verify ended with {done.returncode}: {' '.join(lines)}"] * bool(done.returncode))
