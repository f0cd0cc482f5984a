# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Argument list -> text after `ExecStart=`; the thinking is in module_utils/_systemd_escape.py."""

from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_argv
short_description: An argument list as one line of a systemd unit
version_added: "0.1.0"
author: "dgx_spark.vllm contributors (@dgx-spark)"
description:
  - Escapes quotes, backslashes, C(%), C($) and C(;) so that the process receives the list byte for byte.
options:
  _input:
    description: The arguments.
    type: list
    elements: str
    required: true
  program:
    description:
      - Whether the first element is the file to start. It has to be an absolute path then, and may hold a C($).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show a line of a unit
  ansible.builtin.debug:
    msg: "ExecStart={{ ['/usr/bin/printf', '%s', 'a b'] | dgx_spark.vllm.systemd_argv(program=true) }}"
"""

RETURN = r"""
_value:
  description: Text for C(ExecStart=).
  type: str
"""

from collections.abc import Callable, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _systemd_escape


def systemd_argv(values: Sequence[object], program: bool = False) -> str:
    """Text for ExecStart=."""
    try:
        return _systemd_escape.argv(values, program)
    except ValueError as err:
        raise AnsibleFilterError(f"systemd_argv: {err}") from err


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"systemd_argv": systemd_argv}
