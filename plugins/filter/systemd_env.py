# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables -> lines `Environment=…`; the thinking is in module_utils/_systemd_escape.py."""

from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_env
short_description: Environment variables as lines of a systemd unit
version_added: "0.1.0"
author: "dgx_spark.vllm contributors (@dgx-spark)"
description:
  - Gives one line C(Environment=) a variable, sorted by name. The process receives each value unchanged.
  - Not for secrets, as anybody can read a unit.
options:
  _input:
    description: Values by name.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show lines of a unit
  ansible.builtin.debug:
    msg: "{{ {'OMP_NUM_THREADS': '1'} | dgx_spark.vllm.systemd_env }}"
"""

RETURN = r"""
_value:
  description: The lines, without a final line feed.
  type: str
"""

from collections.abc import Callable, Mapping

from ansible.errors import AnsibleFilterError
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _systemd_escape


def systemd_env(values: Mapping[str, object]) -> str:
    """Lines Environment=."""
    try:
        return _systemd_escape.environment(values)
    except ValueError as err:
        raise AnsibleFilterError(f"systemd_env: {err}") from err


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"systemd_env": systemd_env}
