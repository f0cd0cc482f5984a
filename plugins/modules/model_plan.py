#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_plan
short_description: Decide what each node does about the models
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - From what every node has (M(dgx_spark.vllm.model_state_info)) it decides what the head gets from the source, who
    takes what from whom over the fabric, and how many bytes that is, and checks the disk of every node.
  - Runs in the controller's process; no host is contacted.
options:
  hosts:
    description: The hosts of the deployment, the head first.
    type: list
    elements: str
    required: true
  models:
    description: The models that the card names.
    type: list
    elements: dict
    required: true
  state_variable:
    description: Name of the variable in which each host's result of M(dgx_spark.vllm.model_state_info) was registered.
    type: str
    required: true
  addresses:
    description: Fabric addresses of each host, one a rail.
    type: dict
    required: true
  root:
    description: Folder of the models.
    type: str
    required: true
  source:
    description: Where the models come from, for the summary.
    type: dict
    default: {}
  reserve:
    description: Bytes that stay free on every disk.
    type: int
    default: 0
  settled:
    description: Fail where anything is left to do.
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
- name: Decide what to move
  dgx_spark.vllm.model_plan:
    hosts: "{{ deployment.hosts }}"
    models: "{{ deployment.card.models }}"
    state_variable: state
    addresses: "{{ deployment.addresses }}"
    root: "{{ deployment.models_root }}"
  register: plan
"""

RETURN = r"""
work:
  description: Whether any node has anything to do.
  returned: always
  type: bool
stage:
  description: Models that this host gets from the source, or proves; empty on all hosts but the head.
  returned: success
  type: list
  elements: str
receive:
  description: Models that this host takes from others.
  returned: success
  type: list
  elements: str
offer:
  description: Models that this host offers.
  returned: success
  type: list
  elements: str
sources:
  description: From whom this host takes, the head last.
  returned: success
  type: list
  elements: dict
peers:
  description: Addresses that may take from this host.
  returned: success
  type: list
  elements: str
to_move:
  description: Bytes that this host will write.
  returned: success
  type: int
summary:
  description: The plan for a person.
  returned: success
  type: list
  elements: str
errors:
  description: Faults, each with host, subject, found, expected and cure.
  returned: failure
  type: list
  elements: dict
"""
