#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_rollback
short_description: Choose the release that all hosts go back to
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Chooses the latest release that was current before and that every host still has whole, or fails with the reason of
    each host why there is none. Changes nothing.
options:
  hosts:
    description: Inventory names of the deployment's hosts.
    type: list
    elements: str
    required: true
  variable:
    description: Name under which M(dgx_spark.vllm.engine_info) was registered on each of them.
    type: str
    required: true
  release:
    description: Name of the release to go back to; empty for the latest that all have.
    type: str
    default: ""
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
- name: Choose the one that all of them can go back to
  dgx_spark.vllm.engine_rollback:
    hosts: "{{ deployment.hosts }}"
    variable: neighbours
  run_once: true
"""

RETURN = r"""
release:
  description: Name of the release, or the path of an environment that was adopted.
  returned: success
  type: str
paths:
  description: Its folder on each host.
  returned: success
  type: dict
"""
