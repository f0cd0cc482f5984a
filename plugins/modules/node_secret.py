#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make secrets once and keep them on the node; the thinking is in module_utils/_secret_files.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_secret
short_description: Make secrets once and keep them in files that only the user reads
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - A file holds the values that are given, else what it holds already, else one new random value.
  - Runs as the user that owns the files. The result holds values only where O(secrets[].reveal) asks for it.
    Such a task needs C(no_log).
options:
  secrets:
    description: The secrets.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name in the result.
        type: str
        required: true
      path:
        description: The file, one value a line, mode 0600.
        type: path
        required: true
      values:
        description: The declared values, from a vault. Several are all valid, the first one is used by the node itself.
        type: list
        elements: str
        default: []
      variable:
        description: Name of a variable under which the first value is also written to O(secrets[].env_path).
        type: str
      env_path:
        description: An environment file with the first value, mode 0600.
        type: path
      reveal:
        description: Return the values.
        type: bool
        default: false
extends_documentation_fragment: [ansible.builtin.action_common_attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: Make the key of the API
  dgx_spark.vllm.node_secret:
    secrets:
      - name: api
        path: /home/spark/.config/example/api.keys
  no_log: true
"""

RETURN = r"""
reasons:
  description: Files that were or would be written, each with the reason.
  returned: success
  type: dict
  sample:
    /home/spark/.config/example/api.keys: absent
revealed:
  description: Values by name, only of those with O(secrets[].reveal).
  returned: success
  type: dict
  sample: {}
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._secret_files import SecretError, decide, render, write


def main() -> None:
    """Run the module."""
    text: dict[str, object] = {"type": "str"}
    module = AnsibleModule(
        argument_spec={
            "secrets": {
                "type": "list",
                "elements": "dict",
                "required": True,
                # The task is no_log where values are given or revealed; no_log here would blank the revealed ones.
                "no_log": False,
                "options": {
                    "name": {**text, "required": True},
                    "path": {"type": "path", "required": True},
                    "values": {"type": "list", "elements": "str", "default": []},
                    "variable": text,
                    "env_path": {"type": "path"},
                    "reveal": {"type": "bool", "default": False},
                },
            },
        },
        supports_check_mode=True,
    )
    reasons: dict[str, str] = {}
    revealed: dict[str, list[str]] = {}
    texts: dict[Path, str] = {}
    try:
        for one in module.params["secrets"]:
            path = Path(one["path"])
            outcome = decide(path, one["values"])
            if outcome.reason:
                reasons[str(path)] = outcome.reason
                texts[path] = render(outcome.values)
            if one["variable"]:
                side = Path(one["env_path"])
                wanted = render(outcome.values, one["variable"])
                if not side.is_file() or side.read_text(encoding="ascii") != wanted or side.stat().st_mode & 0o077:
                    reasons[str(side)] = "not that of the first value"
                    texts[side] = wanted
            if one["reveal"]:
                revealed[one["name"]] = outcome.values
        if not module.check_mode:
            for path, content in texts.items():
                write(path, content, os.getuid(), os.getgid())
    except (SecretError, OSError) as err:
        module.fail_json(msg=str(err))
    module.exit_json(changed=bool(reasons), reasons=reasons, revealed=revealed)


if __name__ == "__main__":
    main()
