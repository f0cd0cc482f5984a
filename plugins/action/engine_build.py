# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a release with a line that shows how far it is; the work is the module's of the same name."""

from __future__ import annotations

from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.plugin_utils._model_progress import ProgressAction


class ActionModule(ProgressAction):
    """Begins the build and watches it; what is built already is said at once."""

    module = "dgx_spark.vllm.engine_build"

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Build it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        return result | self.run_job(dict(self._task.args), task_vars or {})
