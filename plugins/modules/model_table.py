#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_table
short_description: Show the models of all nodes, and which cards use them
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Brings together what M(dgx_spark.vllm.model_list_info) found on every node and what the inventory's cards name.
  - Runs in the controller's process; no host is contacted.
options:
  hosts:
    description: The hosts to show.
    type: list
    elements: str
    required: true
  list_variable:
    description: Name of the variable in which each host's result of M(dgx_spark.vllm.model_list_info) was registered.
    type: str
    required: true
  cards:
    description: Names or paths of the cards that are in use.
    type: list
    elements: str
    default: []
  cards_path:
    description: Further folders on the controller in which cards are looked for.
    type: list
    elements: str
    default: []
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
- name: Show the models
  dgx_spark.vllm.model_table:
    hosts: "{{ groups.sparks }}"
    list_variable: listed
    cards: [poolside--Laguna-S-2.1-FP8]
  register: models
"""

RETURN = r"""
table:
  description: Lines to print.
  returned: success
  type: list
  elements: str
used:
  description: For each model the cards that name it.
  returned: success
  type: dict
"""
