#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring systemd units to a state; the thinking is in module_utils/_units.py and _unit_apply.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: unit_state
short_description: Start, restart for a cause, or stop units of the deployment
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Starts units that stand still, and restarts those that run from something else than what lies on the disk now,
    which are the unit file, its drop-ins and the files that the unit names in its section C([X-Vllm]).
  - Everything else is left alone. The daemon is reloaded only where a unit file changed.
options:
  units:
    description: Names of the units, in the order in which they are started. They are stopped in the other order.
    type: list
    elements: str
    required: true
  absent:
    description: Units that are stopped, taken out of the boot and deleted.
    type: list
    elements: str
    default: []
  present_only:
    description: Leave out units that this node does not have.
    type: bool
    default: false
  state:
    description: What the units are brought to.
    type: str
    choices: [started, stopped]
    default: started
  enabled:
    description: Whether they start at boot. Left as it is where not given.
    type: bool
  look:
    description: Change nothing; only say in RV(stale) what would be started and why.
    type: bool
    default: false
  scope:
    description: Which systemd.
    type: str
    choices: [user, system]
    default: user
  uid:
    description: Number of the user of the scope V(user); by default the one that runs the task.
    type: int
  timeout:
    description: How long one start or stop may take, in seconds.
    type: int
    default: 900
extends_documentation_fragment: [ansible.builtin.action_common_attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: Run the server
  dgx_spark.vllm.unit_state:
    units: [vllm-serve.service]
    enabled: true
"""

RETURN = r"""
stale:
  description: Units that needed a start or a restart, each with the cause.
  returned: success
  type: dict
  sample:
    vllm-serve.service: its definition or its configuration changed
steps:
  description: What was or would be done.
  returned: success
  type: list
  elements: dict
"""

import os
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._unit_apply import Step, carry_out, plan
from ansible_collections.dgx_spark.vllm.plugins.module_utils._units import Scope, UnitError


def _diff(steps: list[Step]) -> dict[str, str]:
    """The steps as text for `--diff`."""
    after = "".join(f"{step.verb} {step.unit} ({step.why})\n" for step in steps)
    return {"before_header": "units", "after_header": "units", "before": "", "after": after}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "list", "elements": "str", "required": True},
            "absent": {"type": "list", "elements": "str", "default": []},
            "present_only": {"type": "bool", "default": False},
            "state": {"type": "str", "choices": ["started", "stopped"], "default": "started"},
            "enabled": {"type": "bool"},
            "look": {"type": "bool", "default": False},
            "scope": {"type": "str", "choices": ["user", "system"], "default": "user"},
            "uid": {"type": "int"},
            "timeout": {"type": "int", "default": 900},
        },
        supports_check_mode=True,
    )
    args = module.params
    scope = Scope(args["scope"], os.getuid() if args["uid"] is None else args["uid"])
    try:
        steps = plan(
            scope, args["units"], args["state"], args["enabled"], args["absent"],
            present_only=args["present_only"], predicted=module.check_mode,
        )  # fmt: skip
        stale = {step.unit: step.why for step in steps if step.verb in ("start", "restart")}
        if steps and not module.check_mode and not args["look"]:
            carry_out(scope, steps, args["timeout"])
    except UnitError as err:
        module.fail_json(msg=str(err))
    module.exit_json(
        changed=bool(steps) and not args["look"],
        stale=stale,
        steps=[asdict(step) for step in steps],
        diff=_diff(steps) if steps and not args["look"] else {},
    )


if __name__ == "__main__":
    main()
