# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read on the controller what ships with the role, and resolve where the network is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_wheels import describe


class ActionModule(ActionBase):
    """The action behind M(dgx_spark.vllm.engine_lock)."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Hand the lock of uv and the small wheels' sums over to the module."""
        super().run(tmp, task_vars)
        args = dict(self._task.args)
        names = dict(args.get("row") or {}).get("local_wheels", [])
        try:
            args["uv_lock_content"] = Path(str(args.get("uv_lock"))).read_text(encoding="utf-8")
            args["local"] = [list(describe(Path(str(args.get("sources"))) / str(name))) for name in names]
        except (OSError, ValueError) as exc:
            return {"failed": True, "msg": str(exc)}
        result: dict[str, Any] = self._execute_module(module_args=args, task_vars=task_vars)
        return result
