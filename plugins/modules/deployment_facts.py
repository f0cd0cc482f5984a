#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment_facts
short_description: Assemble the deployment from the card and the probes of all hosts
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Decides who is head, which rank each host has, which addresses the fabric gives, and where everything lies.
  - Runs in the controller's process on what was registered before; no host is contacted.
options:
  group:
    description: The inventory group whose hosts make up the deployment.
    type: str
    required: true
  probe_variable:
    description: Name of the variable in which each host's result of M(dgx_spark.vllm.node_info) was registered.
    type: str
    required: true
  card:
    description: Result of M(dgx_spark.vllm.card_info).
    type: dict
    required: true
  head:
    description: The head's inventory name; empty for the first host of the group.
    type: str
    default: ""
  scope:
    description: Where the units live.
    type: str
    choices: [user, system]
    required: true
  models_root:
    description: Folder of the models on every node; C(~) and relative paths start at the home folder.
    type: str
    required: true
  api:
    description: Bind address and port of the API, as C(host) and C(port).
    type: dict
    required: true
  fabric:
    description:
      - What the inventory fixes of the fabric. C(pins) per host, C(subnets), C(gid_mode), C(min_speed_mbps).
    type: dict
    default: {}
  tolerate_faults:
    description: Return faults instead of failing, for a caller that reports them together with others.
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
- name: Assemble the deployment
  dgx_spark.vllm.deployment_facts:
    group: sparks
    probe_variable: node_probe
    card: "{{ card }}"
    scope: user
    models_root: models
    api: {host: 0.0.0.0, port: 8000}
  register: assembled
"""

RETURN = r"""
deployment:
  description: The host's part of the deployment; null for a host that the card does not take.
  returned: success
  type: dict
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
