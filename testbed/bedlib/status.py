# SPDX-License-Identifier: GPL-3.0-or-later
"""What the nodes are doing, for eyes and for programs."""

from __future__ import annotations

import json
import subprocess
import sys

from . import node
from .options import Bed
from .system import require_root

PROBE = "systemctl is-system-running; cat /sys/class/net/enp1s0f1np1/carrier 2>/dev/null || echo -"


def probe(bed: Bed, number: int) -> dict[str, object]:
    row: dict[str, object] = {"host": bed.host(number), "address": bed.address(number), "power": "off"}
    if not node.keeper_alive(bed, number):
        return row
    row["power"] = "on"
    argv = node.ssh_argv(bed, number, PROBE)
    argv[1:1] = ["-o", "ConnectTimeout=3", "-o", "BatchMode=yes"]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=15, check=False)
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode == 255:
        row["state"] = "no answer"
        return row
    lines = done.stdout.split("\n")
    row["state"], row["carrier"] = lines[0], lines[1]
    return row


def show(bed: Bed, as_json: bool) -> int:
    """Exit status 0 when every node is on and answers."""
    rows = [probe(bed, number) for number in bed.numbers()]
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            cable = {"1": "cable in", "0": "no carrier"}.get(str(row.get("carrier")), "")
            print(f"{row['host']}  {row['address']}  {row['power']:<3}  {row.get('state', '')}  {cable}".rstrip())
    return 0 if all(row["power"] == "on" and row.get("state") != "no answer" for row in rows) else 1


def logs(bed: Bed, number: int, console: bool, arguments: list[str]) -> int:
    if console:
        sys.stdout.write(bed.node_path(number, "console.log").read_text(errors="replace"))
        return 0
    if node.answers(bed, number):
        return subprocess.call(node.ssh_argv(bed, number, "sudo", "journalctl", "--no-pager", *arguments))
    require_root("logs")
    journal = bed.node_path(number, "upper/var/log/journal")
    return subprocess.call(["journalctl", f"--directory={journal}", "--no-pager", *arguments])
