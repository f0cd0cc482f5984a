# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather every fault of every host on the controller; the thinking is in module_utils/_preflight.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils._preflight import but_for_our_tables, check
from ansible_collections.dgx_spark.vllm.plugins.module_utils._report import Fault, fault, format_report


def _crash(host: str, found: Mapping[str, Any]) -> list[Fault]:
    """A probe that ended without a list of faults and with a message did not do its work."""
    text = str(found.get("module_stderr") or found.get("msg") or "").strip()
    if "errors" in found or not text:
        return []
    return [fault(host, "probe", text[-500:], "a result", "this is a fault of the collection or of Python on the node")]


class ActionModule(ActionBase):
    """Runs in the controller's process: every input is there already."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fail with one report of all errors, or show the warnings."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = self._task.args
        hostvars = (task_vars or {})["hostvars"]
        errors: list[Mapping[str, Any]] = []
        warnings: list[Mapping[str, Any]] = []
        for name in args["fault_variables"]:
            for host in args["hosts"]:
                found = hostvars[host].get(name) or {}
                errors += found.get("errors") or _crash(host, found)
                warnings += found.get("warnings_found") or found.get("warning_details") or []
        found_by = {
            host: [hostvars[host].get(name) or {} for name in args["fault_variables"]] for host in args["hosts"]
        }
        stale = [host for host, all_found in found_by.items()
                 if any((found.get("firewall") or {}).get("own_table_stale") for found in all_found)]  # fmt: skip
        deployments = {host: hostvars[host]["deployment"] for host in args["hosts"]}
        errors = but_for_our_tables(errors, deployments, stale)
        more_errors, more_warnings = check(deployments, int(args["reserve_bytes"]))
        errors += more_errors
        warnings += more_warnings
        report = format_report(errors, warnings)
        result.update(changed=False, errors=errors, warnings_found=warnings, report=report)
        if errors:
            result.update(failed=True, msg=report)
        elif warnings:
            result["warnings"] = [report]
        return result
