# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage with a line that shows how far it is, and send what the controller has; the rest is the module's."""

from __future__ import annotations

from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import human
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils._model_progress import ProgressAction
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils._model_push import Push, listing
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils._model_screen import Screen


class ActionModule(ProgressAction):
    """Runs the module; with a source on the controller it sends the files that the node asks for."""

    module = "dgx_spark.vllm.model_stage"

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Stage the models."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args, variables = dict(self._task.args), task_vars or {}
        source = dict(args.get("source") or {"type": "hub"})
        if self._task.check_mode:
            return result | self._execute_module(module_name=self.module, module_args=args, task_vars=variables)
        if source.get("type") == "controller":
            return result | self._from_controller(args, str(source["path"]), variables)
        return result | self._told(self.run_job(args, variables))

    @staticmethod
    def _told(found: dict[str, Any]) -> dict[str, Any]:
        if not found.get("failed") and "moved" in found:
            found["msg"] = f"{human(found['moved'])} came"
        return found

    def _from_controller(self, args: dict[str, Any], path: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Hash here, let the node say what it lacks, send that, let the node prove it."""
        host = str(variables["inventory_hostname"])
        screen = Screen(host)
        try:
            files, faults = {}, []
            for model in args["models"]:
                found = listing(f"{path}/{model['name']}", screen)
                files[model["name"]] = found.files
                faults += found.faults
            if faults:
                return {"failed": True, "msg": f"the controller's models are not complete: {'; '.join(faults[:8])}"}
            asked = args | {"source": {"type": "pushed", "files": files}}
            found_there = self.run_job(asked, variables)
            awaiting = found_there.get("awaiting") or {}
            if found_there.get("failed") or not awaiting:
                return self._told(found_there)
            push = Push(self._connection, variables, screen)
            sent = 0
            for name, paths in awaiting.items():
                sizes = {str(entry["path"]): int(entry["size"]) for entry in files[name]}
                into = f"{args['root']}/.dgx-spark-vllm/{name}/incoming"
                if error := push.send(f"{path}/{name}", paths, into, sum(sizes[p] for p in paths), name):
                    return {"failed": True, "msg": f"{host}: {error}"}
                sent += sum(sizes[p] for p in paths)
            return self._told(self.run_job(asked, variables) | {"moved": sent})
        finally:
            screen.close()
