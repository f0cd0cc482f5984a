#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove models that no card uses; the thinking is in module_utils/_model_tree_list.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_prune
short_description: Remove models that no card uses
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Removes models that are not in O(keep) and that this collection staged. What somebody else put there stays.
  - Without O(confirm), and in check mode, it only says what it would remove.
options:
  root:
    description: Folder of the models.
    type: path
    required: true
  keep:
    description: Folders of the models that are used.
    type: list
    elements: str
    required: true
  confirm:
    description: Remove, and not only say what would be removed.
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
- name: Remove what is not used
  dgx_spark.vllm.model_prune:
    root: /home/spark/models
    keep: [Laguna-S-2.1-FP8, Laguna-S-2.1-DFlash-W4A16]
    confirm: true
"""

RETURN = r"""
removable:
  description: Models that are, or would be, removed.
  returned: success
  type: list
  elements: str
bytes:
  description: Their size.
  returned: success
  type: int
freed:
  description: Bytes that came free.
  returned: success
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_list import listing, prune, unused


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "keep": {"type": "list", "elements": "str", "required": True},
            "confirm": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    args = module.params
    models = listing(args["root"])
    names = unused(models, args["keep"])
    size = sum(model["bytes"] + model["arriving"] for model in models if model["name"] in names)
    act = args["confirm"] and not module.check_mode
    freed = prune(args["root"], names) if act and names else 0
    changed = bool(names) and args["confirm"]
    module.exit_json(changed=changed, removable=names, bytes=size, freed=freed)


if __name__ == "__main__":
    main()
