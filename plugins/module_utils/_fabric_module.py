# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What the module roce_gid_info does between its arguments and its result."""

from __future__ import annotations

from . import _fabric_firewall, _fabric_reach, _report
from ._fabric_checks import check_hosts
from ._roce import read, resolve
from ._roce_table import gid_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ._roce_types import Problem


def gather(params: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The module's result, and the message of a failure; that is empty where there is none."""
    facts = read(params["root"])
    facts["hostname"] = params["host"] or facts["hostname"]
    pins = {key: value for key, value in (params["pins"] or {}).items() if value is not None}
    resolution = resolve(facts, params["addresses"], params["subnets"], params["gid_mode"], pins)
    rails = resolution["rails"]
    # With the facts of all hosts this one is judged among them, under its name in the inventory.
    errors: list[Problem] = [] if params["hosts"] else list(resolution["errors"])
    warnings: list[Problem] = [] if params["hosts"] else list(resolution["warnings"])
    result: dict[str, Any] = {
        "rails": rails,
        "environment": resolution["environment"],
        "table": gid_table(facts["ports"], rails),
        "facts": facts,
        "reach": _fabric_reach.reach(rails, params["peers"]),
        "port_reach": _fabric_reach.probe_ports(params["peers"], params["ports"]) if params["peers"] else [],
    }
    errors += _fabric_reach.errors_of(facts["hostname"], result["reach"])
    errors += _fabric_reach.port_errors(facts["hostname"], result["port_reach"])
    if params["ports"]:
        ways = [(rail["subnet"], rail["netdev"], rail["address"]) for rail in rails if rail["subnet"]]
        result["firewall"] = _fabric_firewall.judge_live(facts["hostname"], params["root"], ways, params["ports"])
        errors += result["firewall"]["errors"]
        warnings += result["firewall"]["warnings"]
    if params["hosts"]:
        report = check_hosts(
            params["hosts"],
            pins=params["host_pins"],
            subnets=params["subnets"],
            gid_mode=params["gid_mode"],
            min_speed_mbps=params["min_speed_mbps"],
        )
        result["hosts"] = report
        errors += report["errors"]
        warnings += report["warnings"]
    result["warning_details"] = warnings
    if not errors:
        return result, ""
    result["errors"] = errors
    return result, "The fabric is not usable.\n" + _report.format_report(errors)
