#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two nodes on this machine serve a model through the real playbooks; one screen at the end says so.

Nothing here knows how to install or serve: it makes the bed and the tiny models, runs `site.yml`, and then asks the
served model from outside, as any client would.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.dgx_spark.vllm.plugins.module_utils._acceptance import Api, smoke, window  # noqa: E402

INVENTORY = "inventories/local"
NEEDED_DISK_GIB = 25
NEEDED_MEMORY_GIB = 8
Steps = list[tuple[str, float]]


class DemoError(Exception):
    """Why the demo cannot go on, and what to do."""


def require_machine() -> None:
    """Refuse where the bed cannot run, naming everything that is missing at once."""
    missing = []
    if sys.platform != "linux":
        missing.append(f"Linux (this is {sys.platform}): run the demo in a Linux VM with root")
    elif os.geteuid() != 0:
        missing.append("root: network namespaces and mounts need it; run `sudo make demo`")
    else:
        stat = os.statvfs(ROOT)
        free = stat.f_bavail * stat.f_frsize / 2**30
        if free < NEEDED_DISK_GIB and not (ROOT / ".bed").exists():
            missing.append(f"{NEEDED_DISK_GIB} GiB of free disk ({free:.0f} GiB here)")
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        if memory < NEEDED_MEMORY_GIB:
            missing.append(f"{NEEDED_MEMORY_GIB} GiB of memory ({memory:.0f} GiB here)")
    if missing:
        raise DemoError("the demo cannot run here; it needs\n  - " + "\n  - ".join(missing))


def run(title: str, argv: list[str], steps: Steps) -> None:
    """Run a step with its output shown, and note how long it took."""
    print(f"\n== {title}", flush=True)
    began = time.monotonic()
    done = subprocess.run(argv, cwd=ROOT, check=False)
    steps.append((title, time.monotonic() - began))
    if done.returncode:
        raise DemoError(f"{title} failed (exit {done.returncode}): {' '.join(argv)}")


def run_playbook(steps: Steps) -> str:
    """Run site.yml with its output shown, note the time of each play, and return the recap."""
    argv = [f"{ROOT}/.venv/bin/ansible-playbook", "-i", INVENTORY, "site.yml"]
    print(f"\n== ansible-playbook -i {INVENTORY} site.yml", flush=True)
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "ANSIBLE_FORCE_COLOR": "1" if sys.stdout.isatty() else "0"}
    process = subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    title, began, recap = "", time.monotonic(), []
    in_recap = False
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
        match = re.match(r"PLAY \[(.*?)\]|PLAY RECAP", plain)
        if match:
            if title:
                steps.append((title, time.monotonic() - began))
            title, began = match.group(1) or "", time.monotonic()
            in_recap = match.group(1) is None
        elif in_recap and plain.strip():
            recap.append(plain.rstrip())
    if process.wait():
        raise DemoError(f"site.yml failed (exit {process.returncode}); mend what it names and type `make demo` again")
    return "\n".join(recap)


def inventory() -> dict[str, dict[str, Any]]:
    """The variables of each host of the bed, the head first."""
    done = subprocess.run([f"{ROOT}/{INVENTORY}/bed.py", "--list"], capture_output=True, text=True, check=True)
    parsed = json.loads(done.stdout)
    hosts: dict[str, dict[str, Any]] = parsed["_meta"]["hostvars"]
    return hosts


def on_node(name: str, command: str) -> str:
    """Standard output of a shell command on a node, as the engine's user."""
    done = subprocess.run([f"{ROOT}/testbed/bed", "ssh", name, command], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def screen(hosts: dict[str, dict[str, Any]], steps: Steps, recap: str) -> None:
    """Ask the model from outside, and show what a person wants to know."""
    head = next(iter(hosts))
    address = hosts[head]["ansible_host"]
    key = on_node(head, "sed -n 's/^VLLM_API_KEY=//p' ~/.config/dgx-spark-vllm/api.env").strip("\"'")
    status = json.loads(on_node(head, "~/.local/share/dgx-spark-vllm/bin/vllm-node status --json"))
    api = Api(f"http://{address}:8000", key, 120)
    models = json.loads(api.get_text("/v1/models"))["data"]
    model = models[0]["id"]
    expect: dict[str, Any] = {"prompt": "What is the capital of France? Answer in one word.", "max_tokens": 32}
    asked = smoke(api, model, expect)
    spun = window(api, model, expect["prompt"], 128)
    cluster = status["cluster"]
    print("\n" + "=" * 100)
    print(f"Nodes       {', '.join(f'{name} ({vars_["ansible_host"]})' for name, vars_ in hosts.items())}")
    used = f"{cluster['used']:.1f}/{cluster['devices']:.1f} GPU"
    print(f"Devices     {used} in one Ray cluster of {len(cluster['nodes'])} nodes")
    print(f"Model       {model} at http://{address}:8000/v1")
    print(f"Prompt      {asked['prompt']}")
    print(f"Answer      {asked['answer']}   ({asked['tokens']} tokens, finish reason {asked['finish_reason']})")
    rate = f"{spun['acceptance']:.1%}" if spun["acceptance"] is not None else "none"
    print(f"Speculation {spun['drafted']} tokens drafted, {spun['accepted']} accepted ({rate})")
    print("Seconds     " + "\n            ".join(f"{seconds:7.1f}  {title}" for title, seconds in steps))
    print("Recap       " + "\n            ".join(recap.splitlines()))
    print("Next        testbed/bed ssh spark-01 cat .config/dgx-spark-vllm/api.env   # the API key")
    print(f"            curl http://{address}:8000/v1/chat/completions -H 'Content-Type: application/json' \\")
    print('              -H "Authorization: Bearer $(testbed/bed ssh spark-01 cat .config/dgx-spark-vllm/api.env \\')
    print("              | sed -n 's/^VLLM_API_KEY=//p')\" \\")
    print(f'              -d \'{{"model": "{model}", "messages": [{{"role": "user", "content": "hi"}}]}}\'')
    print(f"            .venv/bin/ansible-playbook -i {INVENTORY} playbooks/status.yml   # or stop.yml, start.yml")
    print("            make down                                                       # the nodes go away again")


def main() -> int:
    """Bed, models, site.yml, screen."""
    steps: Steps = []
    try:
        require_machine()
        run("Two nodes with real systemd and OpenSSH", [f"{ROOT}/testbed/bed", "up"], steps)
        run("Tiny models", [sys.executable, f"{ROOT}/testbed/models/make_tiny.py"], steps)
        recap = run_playbook(steps)
        screen(inventory(), steps, recap)
    except DemoError as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
