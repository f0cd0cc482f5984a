# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a playbook as a person would, and read what it says of each host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """What one run said. changed: names of changed tasks per host; text: all that they said, per host."""

    failed: bool
    changed: dict[str, list[str]]
    text: dict[str, str]
    output: str

    def names(self, host: str, thing: str) -> bool:
        """Whether the run said of `host` that `thing` is changed: in a changed task of it, or in a line `HOST: …`."""
        return thing in self.text.get(host, "") or bool(re.search(rf'{host}: [^"\n]*{re.escape(thing)}', self.output))

    def said(self) -> str:
        """A short text for a failed assertion."""
        return json.dumps({"failed": self.failed, "changed": self.changed}, indent=1) + self.output[-2000:]


def run(*arguments: str, inventory: str = "inventories/local", timeout_s: float = 900) -> Outcome:
    """ansible-playbook with `arguments`, read through the JSON callback."""
    env = {
        **os.environ,
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "ANSIBLE_FORCE_COLOR": "0",
    }
    argv = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", inventory, *arguments]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    start = done.stdout.find("{\n")
    try:
        report: dict[str, Any] = json.loads(done.stdout[start:])
    except ValueError:
        return Outcome(True, {}, {}, done.stdout + done.stderr)
    changed: dict[str, list[str]] = {host: [] for host in report["stats"]}
    text: dict[str, str] = dict.fromkeys(report["stats"], "")
    for play in report["plays"]:
        for task in play["tasks"]:
            for host, result in task["hosts"].items():
                if result.get("changed") and host in changed:
                    changed[host].append(task["task"]["name"])
                    text[host] += task["task"]["name"] + json.dumps(result)
    return Outcome(done.returncode != 0, changed, text, done.stdout + done.stderr)
