# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Says who asks for the lock, and which earlier holders of this controller are gone."""

from __future__ import annotations

import base64
import getpass
import json
import os
import socket
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils._play_lock import identity


class ActionModule(ActionBase):
    """Runs the module of the same name twice at most: the holder is known after the first time only."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Hand over who this run is."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        boot = Path("/proc/sys/kernel/random/boot_id")
        own = {
            "who": getpass.getuser(),
            "controller": socket.gethostname(),
            "boot": boot.read_text(encoding="ascii").strip() if boot.exists() else "",
            # Tasks run in children of the run itself.
            "process": identity(os.getppid()),
            "what": str(variables.get("ansible_play_name", "")),
        }
        args = {**self._task.args, "own": {**own, "gone": self._gone(variables)}}
        result.update(
            self._execute_module(module_name="dgx_spark.vllm.play_lock", module_args=args, task_vars=task_vars)
        )
        return result

    def _gone(self, task_vars: dict[str, Any]) -> list[str]:
        """The holder of the lock, where it is a process of this controller that is gone."""
        read = self._execute_module(
            module_name="ansible.builtin.slurp", module_args={"src": self._task.args["path"]}, task_vars=task_vars
        )
        if read.get("failed"):
            return []
        try:
            held = str(json.loads(base64.b64decode(str(read["content"])))["process"])
        except (ValueError, KeyError, TypeError):
            return []
        alive = identity(int(held.partition(":")[0] or 0))
        return [] if alive == held else [held]
