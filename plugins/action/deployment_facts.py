# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assemble the deployment of a host on the controller; the thinking is in module_utils/_deployment.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils._deployment import assemble
from ansible_collections.dgx_spark.vllm.plugins.module_utils._report import format_report

OPTIONS = ("head", "scope", "models_root", "api", "fabric")


class ActionModule(ActionBase):
    """Runs in the controller's process: every input is there already."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `deployment` (null for a host that the card does not take), `errors` and `warnings_found`."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        args = self._task.args
        group = list(variables["groups"][args["group"]])
        hostvars = variables["hostvars"]
        registered = str(args["probe_variable"])
        probes = {
            host: found
            for host in group
            if (found := hostvars[host].get(registered)) and not found.get("failed") and "node" in found
        }
        built = assemble(group, probes, args["card"], {key: args.get(key) for key in OPTIONS})
        result.update(
            changed=False,
            deployment=built["hosts"].get(variables["inventory_hostname"]),
            errors=built["errors"],
            warnings_found=built["warnings"],
        )
        if built["errors"] and not (args.get("tolerate_faults") and built["hosts"]):
            result.update(failed=True, msg=format_report(built["errors"], built["warnings"]))
        return result
