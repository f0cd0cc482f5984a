#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_report
short_description: Fail with one report of every fault of every host
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Gathers the faults that earlier tasks registered, compares the hosts with each other and with the card, and fails
    with one report. Warnings are shown and do not fail.
  - Runs in the controller's process; no host is contacted.
options:
  hosts:
    description: Inventory names of the deployment's hosts; each has the fact C(deployment).
    type: list
    elements: str
    required: true
  fault_variables:
    description: Names of registered variables with lists C(errors) and C(warnings_found) or C(warning_details).
    type: list
    elements: str
    default: []
  reserve_bytes:
    description: Memory kept for the system on every node beside the units' caps, in bytes.
    type: int
    required: true
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
attributes:
  action:
    support: full
  async:
    support: none
  bypass_host_loop:
    support: none
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: Report every fault of every host
  dgx_spark.vllm.preflight_report:
    hosts: "{{ deployment.hosts }}"
    reserve_bytes: 4294967296
  run_once: true
"""

RETURN = r"""
report:
  description: The report as text.
  returned: always
  type: str
errors:
  description: Faults, each with host, subject, found, expected and cure.
  returned: always
  type: list
  elements: dict
warnings_found:
  description: What does not keep the deployment from working, in the same form.
  returned: always
  type: list
  elements: dict
"""
