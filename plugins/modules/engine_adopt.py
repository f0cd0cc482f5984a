#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adopt an environment; the thinking is in module_utils/_engine_adopt.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_adopt
short_description: Verify an environment that somebody else made, and use it as it is
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Runs the programs of an environment, compares versions and patches with what is expected, and notes down the sums of
    its files in the folder of the deployment. The environment itself is never written to.
options:
  root:
    description: Folder of the deployment on the node.
    type: path
    required: true
  id:
    description: Name under which the environment is noted down.
    type: str
    required: true
  path:
    description: The environment.
    type: path
    required: true
  expected:
    description:
      - Versions that it must have, by C(vllm), C(torch), C(torch_cuda), C(ray), C(nccl). An empty one is not checked.
    type: dict
    default: {}
  imports:
    description: Modules that must be importable.
    type: list
    elements: str
    default: []
  programs:
    description: Programs that the engine calls while it runs, and that must be in the units' PATH.
    type: list
    elements: str
    default: []
  environment:
    description: Further variables of the units, for the checks.
    type: dict
    default: {}
  patches:
    description: Contents of the patches that it must have, by name.
    type: dict
    default: {}
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
- name: Use the environment that is there
  dgx_spark.vllm.engine_adopt:
    root: "{{ deployment.root }}"
    id: adopted-1c2d3e4f
    path: ~/venvs/vllm-025
    expected: {torch_cuda: "12.9"}
"""

RETURN = r"""
release:
  description: What is in it - versions as the programs say them, and the sum of its files.
  returned: success
  type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_adopt import adopt
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_build import BuildError


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "id": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "expected": {"type": "dict", "default": {}},
            "imports": {"type": "list", "elements": "str", "default": []},
            "programs": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
            "patches": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    args = module.params
    try:
        release = adopt(
            Path(args["root"]),
            args["id"],
            Path(args["path"]),
            args["expected"],
            args["imports"],
            args["programs"],
            {key: str(value) for key, value in args["environment"].items()},
            args["patches"],
            module.check_mode,
        )
    except (BuildError, OSError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=True, release=release)


if __name__ == "__main__":
    main()
