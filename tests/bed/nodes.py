# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the scenarios' tests share: a user's units on a node, and the served API from outside."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils._acceptance import Api, ApiError, smoke

ROOT = Path(__file__).resolve().parents[2]
STATE = "/home/spark/.local/share/dgx-spark-vllm"
CONFIG = "/home/spark/.config/dgx-spark-vllm"
MODELS = "/home/spark/models"
HEAD, WORKER = "spark-01", "spark-02"
MODEL = "laguna-chain-tiny"
EXPECT = {"prompt": "What is the capital of France? Answer in one word.", "answer": "Paris", "max_tokens": 32}
USER_BUS = "XDG_RUNTIME_DIR=/run/user/1000"


def out(host: Any, command: str) -> str:
    """Standard output of a command that must succeed, as the engine's user."""
    done = host.run(command)
    assert done.rc == 0, f"{command}: exit {done.rc}: {done.stderr}"
    return str(done.stdout).strip()


def put(host: Any, source: Path, target: str) -> None:
    """Copy a file or folder of the controller to a node, over the same SSH as Ansible's."""
    ssh = host.backend.get_variables()
    options = [*shlex.split(ssh["ansible_ssh_common_args"]), "-i", ssh["ansible_ssh_private_key_file"]]
    place = f"{ssh['ansible_user']}@{ssh['ansible_host']}:{target}"
    subprocess.run(["scp", "-q", "-r", *options, str(source), place], check=True, timeout=120)


def unit_property(host: Any, unit: str, name: str) -> str:
    """A property of one of the user's units."""
    return out(host, f"{USER_BUS} systemctl --user show --value -p {name} {unit}")


def ray_unit(name: str) -> str:
    """The Ray unit of a node."""
    return "vllm-ray-head.service" if name == HEAD else "vllm-ray-worker.service"


def environment_of(host: Any, unit: str) -> dict[str, str]:
    """The environment that a unit's main process really has."""
    pid = unit_property(host, unit, "MainPID")
    text = out(host, f"tr '\\0' '\\n' < /proc/{pid}/environ")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def api_of(head: Any, address: str, timeout_s: float = 60) -> Api:
    """The served API from outside, with the key that lies on the head."""
    line = out(head, f"grep ^VLLM_API_KEY= {CONFIG}/api.env")
    return Api(f"http://{address}:8000", line.split("=", 1)[1].strip("\"'").split(",")[0], timeout_s)


def wait_for(what: str, seconds: float, probe: Callable[[], Any]) -> Any:
    """The first true answer of `probe`, or a failure that says what was waited for and the last error."""
    end = time.monotonic() + seconds
    last: Exception | None = None
    while time.monotonic() < end:
        try:
            if answer := probe():
                return answer
        except (ApiError, AssertionError, OSError, json.JSONDecodeError, RuntimeError) as error:
            last = error
        time.sleep(1)
    raise AssertionError(f"{what} did not come within {seconds:g} s; last error: {last}")


def serving(api: Api) -> dict[str, Any]:
    """The smoke answer, if it is the true one."""
    answer = smoke(api, MODEL, EXPECT)
    assert answer["answer"].strip() == EXPECT["answer"], answer
    return answer
