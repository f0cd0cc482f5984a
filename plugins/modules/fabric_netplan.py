#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses for bare fabric ports; the thinking is in module_utils/_fabric_netplan.py and _fabric_netplan_try.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_netplan
short_description: Give bare fabric ports static addresses, on trial
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Plans one netplan file for each host, which gives every RDMA port with a link but without a static address one in a
    subnet of its own.
  - Puts it in force on trial. Unless the trial is confirmed over a fresh connection, the node takes it back by itself,
    also when it was switched off meanwhile.
  - An interface that anything else configures is refused; no other file is ever changed.
options:
  phase:
    description:
      - V(read) returns what O(hosts) needs of each host.
      - V(plan) returns each host's file, or fails with every reason not to write one.
      - V(begin) puts O(content) in force on trial, and ends when the addresses are there.
      - V(confirm) keeps it. To be asked for over a connection made after V(begin), which shows that the node can be
        reached.
    type: str
    choices: [read, plan, begin, confirm]
    required: true
  hosts:
    description: For V(plan), name to the RV(host) of V(read), in the inventory's order.
    type: dict
  subnets:
    description: For V(plan), subnets to take for new rails, in order; those in use are passed over.
    type: list
    elements: str
    default: [192.168.100.0/24, 192.168.101.0/24]
  mtu:
    description: For V(plan), MTU of the ports.
    type: int
    default: 9000
  addresses:
    description: For V(plan), host to interface to C(address/prefix), instead of what would be found for that host.
    type: dict
    default: {}
  content:
    description: For V(begin), the host's file as V(plan) returned it; empty to take it out.
    type: str
    default: ""
  rollback_s:
    description: For V(begin), seconds after which the node takes the trial back.
    type: int
    default: 120
  wait_s:
    description: For V(begin), seconds within which the addresses have to be there, or it is taken back at once.
    type: int
    default: 20
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
- name: Read what configures the network
  dgx_spark.vllm.fabric_netplan:
    phase: read
  become: true
  register: read

- name: Plan for all hosts
  dgx_spark.vllm.fabric_netplan:
    phase: plan
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, ['read', 'host']))) }}"
  run_once: true
  register: plan

- name: Begin the trial
  dgx_spark.vllm.fabric_netplan:
    phase: begin
    content: "{{ plan.files[inventory_hostname] }}"
  become: true

- name: Connect anew
  ansible.builtin.meta: reset_connection

- name: Keep it
  dgx_spark.vllm.fabric_netplan:
    phase: confirm
  become: true
"""

RETURN = r"""
host:
  description: Facts of the fabric, hardware addresses, and the texts of the files that configure interfaces.
  returned: V(read)
  type: dict
files:
  description: Each host's netplan file; empty where none is needed.
  returned: V(plan)
  type: dict
errors:
  description: Every reason not to write a file.
  returned: failure of V(plan)
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_netplan, _fabric_netplan_try, _report
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce import read

ARGUMENTS: dict[str, dict[str, Any]] = {
    "phase": {"type": "str", "choices": ["read", "plan", "begin", "confirm"], "required": True},
    "hosts": {"type": "dict"},
    "subnets": {"type": "list", "elements": "str", "default": ["192.168.100.0/24", "192.168.101.0/24"]},
    "mtu": {"type": "int", "default": 9000},
    "addresses": {"type": "dict", "default": {}},
    "content": {"type": "str", "default": ""},
    "rollback_s": {"type": "int", "default": 120},
    "wait_s": {"type": "int", "default": 20},
}


def _plan(module: AnsibleModule) -> None:
    params = module.params
    files, errors = _fabric_netplan.plan(params["hosts"], params["subnets"], params["mtu"], params["addresses"])
    if errors:
        msg = "No netplan file is written.\n" + _report.format_report(errors)
        module.fail_json(msg=msg, errors=errors, files=files)
    module.exit_json(changed=False, files=files)


def _begin(module: AnsibleModule) -> None:
    trial, content = _fabric_netplan_try.Trial(), module.params["content"]
    before = trial.current()
    shown = {"before": before, "after": content, "before_header": str(trial.target), "after_header": str(trial.target)}
    if module.check_mode:
        module.exit_json(changed=before != content, diff=shown if before != content else [])
    netdevs = read()["netdevs"]
    mtus = {name: netdevs[name]["mtu"] for name in _fabric_netplan.ours(content) if name in netdevs}
    changed = trial.begin(content, mtus, module.params["rollback_s"])
    if changed:
        trial.settle(lambda: _complaint(_fabric_netplan.ours(content)), module.params["wait_s"])
    module.exit_json(changed=changed, diff=shown if changed else [])


def _complaint(wanted: dict[str, str]) -> str:
    """The first address that is not there."""
    netdevs = read()["netdevs"]
    for name, value in wanted.items():
        entries = netdevs[name]["addresses"] if name in netdevs else []
        if not any(f"{entry['address']}/{entry['prefix']}" == value for entry in entries):
            return f"{name} has no {value}"
    return ""


def _confirm(module: AnsibleModule) -> None:
    if not module.check_mode:
        _fabric_netplan_try.Trial().confirm()
    # What the trial changed, `begin` has told.
    module.exit_json(changed=False)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS, required_if=[("phase", "plan", ["hosts"])], supports_check_mode=True
    )
    try:
        if module.params["phase"] == "read":
            facts, configs = read(), _fabric_netplan_try.read_configs()
            macs = _fabric_netplan_try.read_macs(facts["netdevs"])
            module.exit_json(changed=False, host={"facts": facts, "configs": configs, "macs": macs})
        {"plan": _plan, "begin": _begin, "confirm": _confirm}[module.params["phase"]](module)
    except (_fabric_netplan_try.TrialError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
