# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide on the controller what each node does about the models; the thinking is in module_utils/_mirror_plan.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_plan import plan, summary
from ansible_collections.dgx_spark.vllm.plugins.module_utils._report import fault, format_report


class ActionModule(ActionBase):
    """Runs in the controller's process: every input is there already."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return this host's part of the plan."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables, args = task_vars or {}, self._task.args
        hosts = list(args["hosts"])
        hostvars, registered = variables["hostvars"], str(args["state_variable"])
        found = {host: hostvars[host].get(registered) for host in hosts if host in hostvars}
        unknown = [host for host in hosts if not isinstance(found.get(host), dict) or "models" not in found[host]]
        if unknown:
            errors = [
                fault(host, "models", "its state is not known", "every host of the deployment", "run without --limit")
                for host in unknown
            ]
            return result | {"failed": True, "msg": format_report(errors)}
        root, reserve = str(args["root"]), int(args.get("reserve") or 0)
        planned = plan(hosts, args["models"], found, args["addresses"], root, reserve)
        mine = planned["hosts"][variables["inventory_hostname"]]
        source = str((args.get("source") or {}).get("type") or "hub")
        result |= {**mine, "work": planned["work"], "summary": summary(planned, hosts[0], source), "changed": False}
        if planned["errors"]:
            result |= {"failed": True, "errors": planned["errors"], "msg": format_report(planned["errors"])}
        elif args.get("settled") and planned["work"]:
            left = "; ".join(result["summary"])
            result |= {"failed": True, "msg": f"the models are still not the same and proved everywhere: {left}"}
        return result
