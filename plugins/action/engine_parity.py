# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the plans of all hosts: one report of everything that stands in the way, and what is to be done."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_faults, _engine_plan, _manifest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._report import Fault, fault, format_report

display = Display()


class ActionModule(ActionBase):
    """The action behind M(dgx_spark.vllm.engine_parity)."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read all plans, report, and gather the steps."""
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _unused, args = self.validate_argument_spec(  # type: ignore[no-untyped-call]
            {
                "hosts": {"type": "list", "elements": "str", "required": True},
                "variable": {"type": "str", "required": True},
                "settled": {"type": "bool", "default": False},
            }
        )
        plans: dict[str, dict[str, Any]] = {}
        nodes: dict[str, dict[str, Any]] = {}
        for host in args["hosts"]:
            variables = task_vars["hostvars"][host]
            if args["variable"] in variables:
                plans[host] = variables[args["variable"]]
                nodes[host] = variables["deployment"]["node"]
        errors, warnings = _engine_faults.parity(nodes)
        for plan in plans.values():
            errors += plan["faults"]["errors"]
            warnings += plan["faults"]["warnings"]
        errors += self._unequal(plans)
        warnings += [item for host, plan in plans.items() for item in _engine_faults.to_report(host, plan)]
        if args["settled"]:
            errors += self._unsettled(plans)
        todo = [step for step in _engine_plan.STEPS if any(step in plan["todo"] for plan in plans.values())]
        for text in filter(None, [format_report([], warnings)]):
            display.warning(text)
        result: dict[str, Any] = {
            "changed": False,
            "todo": todo,
            "summary": [line for host, plan in plans.items() for line in _engine_plan.summary(host, plan)],
            "errors": errors,
            "warnings_found": warnings,
        }
        if errors:
            return {**result, "failed": True, "msg": format_report(errors)}
        return result

    @staticmethod
    def _unequal(plans: dict[str, dict[str, Any]]) -> list[Fault]:
        """Packages that are not the same on all hosts that have the release complete."""
        ready = [(host, plan["node"]["packages"]) for host, plan in plans.items() if plan["node"]["state"] == "ready"]
        return [
            fault(
                "",
                f"package {name or '(the environment itself)'}",
                "\n".join(f"{host}: {value}" for host, value in row.items()),
                "the same content on all nodes",
                "remove the release on the node that is wrong and run again",
            )
            for name, row in _manifest.unequal(ready).items()
        ]

    @staticmethod
    def _unsettled(plans: dict[str, dict[str, Any]]) -> list[Fault]:
        """Hosts on which something is still to be done although everything was."""
        found = []
        for host, plan in plans.items():
            left = [step for step in plan["todo"] if step != "switch"]
            if left:
                detail = "; ".join(f"{item['path']} {item['problem']}" for item in plan["node"]["differences"][:5])
                text = f"still to be done: {', '.join(left)} {detail}".rstrip()
                found.append(fault(host, f"release {plan['id']}", text, "a complete release", "see the tasks above"))
        return found
