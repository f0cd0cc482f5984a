# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the release that all hosts go back to, or say why there is none."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_rollback import choose
from ansible_collections.dgx_spark.vllm.plugins.module_utils._report import format_report


class ActionModule(ActionBase):
    """The action behind M(dgx_spark.vllm.engine_rollback)."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read what every host has, and choose."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        _unused, args = self.validate_argument_spec(  # type: ignore[no-untyped-call]
            {
                "hosts": {"type": "list", "elements": "str", "required": True},
                "variable": {"type": "str", "required": True},
                "release": {"type": "str", "default": ""},
            }
        )
        hostvars = variables["hostvars"]
        states, roots, lost = {}, {}, []
        for host in args["hosts"]:
            found = hostvars[host].get(args["variable"])
            if not found or found.get("failed"):
                lost.append(host)
                continue
            states[host], roots[host] = found, hostvars[host]["deployment"]["root"]
        if lost:
            result.update(failed=True, msg=f"no answer from {', '.join(lost)}; all nodes go back, or none")
            return result
        release, errors = choose(states, roots, args["release"])
        if errors:
            result.update(failed=True, errors=errors, msg=format_report(errors))
            return result
        paths = {host: release if "/" in release else f"{roots[host]}/releases/{release}" for host in states}
        result.update(changed=False, release=release, paths=paths)
        return result
