#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_parity
short_description: Compare the plans of all hosts and report what stands in the way
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Compares driver, kernel, CUDA toolkit, Python and the packages of the release between hosts, gathers the faults of
    the plans, and fails with one report where there are errors. Differences that do not matter are shown as warnings.
options:
  hosts:
    description: Inventory names of the deployment's hosts.
    type: list
    elements: str
    required: true
  variable:
    description: Name under which M(dgx_spark.vllm.engine_plan) was registered on each of them.
    type: str
    required: true
  settled:
    description: Fail also where anything but the switch is still to be done.
    type: bool
    default: false
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
- name: Compare the nodes and say what is to be done
  dgx_spark.vllm.engine_parity:
    hosts: "{{ deployment.hosts }}"
    variable: engine_release
  run_once: true
"""

RETURN = r"""
todo:
  description: Steps that are to be done on any host.
  returned: always
  type: list
  elements: str
summary:
  description: The same in words, a line a step and host.
  returned: always
  type: list
  elements: str
errors:
  description: What stands in the way, each with host, subject, found, expected and cure.
  returned: always
  type: list
  elements: dict
warnings_found:
  description: What is worth knowing, in the same form.
  returned: always
  type: list
  elements: dict
"""
