#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List all models of a node; the thinking is in module_utils/_model_tree_list.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_list_info
short_description: List all models of a node
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Every folder below the models' folder with its size, whether it is complete and proved, and what it was staged from.
options:
  root:
    description: Folder of the models.
    type: path
    required: true
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
- name: List the models
  dgx_spark.vllm.model_list_info:
    root: /home/spark/models
  register: listed
"""

RETURN = r"""
models:
  description: The models by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Folder of the model.
      type: str
    bytes:
      description: Size of its files.
      type: int
    complete:
      description: Whether nothing is wrong with it.
      type: bool
    proved:
      description: Whether every file is as it was when its sum was found right.
      type: bool
    revision:
      description: Commit that it was staged at.
      type: str
    staged:
      description: Whether this collection put it there.
      type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_list import listing


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "required": True}}, supports_check_mode=True)
    module.exit_json(changed=False, models=listing(module.params["root"]))


if __name__ == "__main__":
    main()
