# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One real run of ansible-playbook on this machine for a list of tasks, with results and durations."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]


def play(folder: Path, tasks: list[dict[str, Any]], *arguments: str) -> list[dict[str, Any]]:
    """The result of each task, its duration in seconds under `seconds`."""
    book = folder / "play.yml"
    head = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    book.write_text(
        yaml.safe_dump([{**head, "tasks": [{**task, "ignore_errors": True} for task in tasks]}]), encoding="utf-8"
    )
    environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "ANSIBLE_LOCALHOST_WARNING": "false",
                   "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false"}  # fmt: skip
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    done = subprocess.run([program, str(book), *arguments], check=False, capture_output=True, text=True, cwd=ROOT,
                          env=environment, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = []
    for task in json.loads(done.stdout[done.stdout.index("{") :])["plays"][0]["tasks"]:
        start, end = (datetime.datetime.fromisoformat(task["task"]["duration"][key]) for key in ("start", "end"))
        found.append({**task["hosts"]["localhost"], "seconds": (end - start).total_seconds()})
    assert len(found) == len(tasks)
    return found
