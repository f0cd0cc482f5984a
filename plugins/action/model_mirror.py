# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mirror with a line that shows how far it is; the work is the module's of the same name."""

from __future__ import annotations

from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import duration, human
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils._model_progress import ProgressAction


class ActionModule(ProgressAction):
    """Begins the pull and watches it; the other phases answer at once."""

    module = "dgx_spark.vllm.model_mirror"

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the phase."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args, variables = dict(self._task.args), task_vars or {}
        if args.get("phase") != "pull" or self._task.check_mode:
            return result | self._execute_module(module_name=self.module, module_args=args, task_vars=variables)
        found = self.run_job(args, variables)
        if not found.get("failed") and "moved" in found:
            seconds = max(float(found["seconds"]), 0.01)
            rate = f", {human(found['moved'] / seconds)}/s" if found["moved"] else ""
            found["changed"] = bool(found["moved"] or found["mended"])
            found["msg"] = f"{human(found['moved'])} in {duration(seconds)}{rate}"
        return result | found
