# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a model folder, with a line that shows how far a deep check is; the work is the module's of the same name."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils._model_progress import ProgressAction


class ActionModule(ProgressAction):
    """Watches a deep check; a quick one answers at once. Neither changes a model, in check mode or without."""

    module = "dgx_spark.vllm.model_tree_info"

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge the folder."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args, variables = dict(self._task.args), task_vars or {}
        if boolean(args.get("deep", False), strict=False):
            return result | self.run_job(args, variables)
        return result | self._execute_module(module_name=self.module, module_args=args, task_vars=variables)
