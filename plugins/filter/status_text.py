# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the nodes say -> one screen; the thinking is in module_utils/_status_text.py."""

from __future__ import annotations

DOCUMENTATION = r"""
name: status_text
short_description: One screen about a deployment
version_added: "0.1.0"
author: "dgx_spark.vllm contributors (@dgx-spark)"
description:
  - Makes one screen for a person out of the results of M(dgx_spark.vllm.status_info) of all hosts.
options:
  _input:
    description: Registered results by inventory name. A host that was not reached is said to be so.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show it
  ansible.builtin.debug:
    msg: "{{ {'spark-01': status_of_spark_01} | dgx_spark.vllm.status_text }}"
"""

RETURN = r"""
_value:
  description: The screen, several lines.
  type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils._status_text import screen


def status_text(hosts: Mapping[str, Mapping[str, Any]]) -> str:
    """One screen."""
    return screen(hosts)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"status_text": status_text}
