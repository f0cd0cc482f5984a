#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node has of its models; the thinking is in module_utils/_model_tree_state.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_state_info
short_description: Say what a node has of the models that it needs
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Judges every wanted model folder by names, sizes and headers, and against the manifest that came with it, all in one
    call. Reads no weights and writes nothing.
options:
  root:
    description: Folder of the models.
    type: path
    required: true
  models:
    description:
      - The models that are wanted, as the card names them, each with C(name) (its folder below O(root)) and C(bytes).
        Other keys are ignored.
    type: list
    elements: dict
    required: true
  speculative:
    description:
      - The card's speculation (C(method), C(depth), C(trained_for)). With method C(dflash) a draft that is here is held
        against the target's configuration.
    type: dict
    default: {}
  host:
    description: Name of this host in RV(errors); the inventory's.
    type: str
    default: ""
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
- name: See what is there
  dgx_spark.vllm.model_state_info:
    root: /home/spark/models
    models:
      - name: Laguna-S-2.1-FP8
        bytes: 121000000000
  register: state
"""

RETURN = r"""
models:
  description: What the node has of each model, in the order in which they were given.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Folder of the model.
      type: str
    complete:
      description: Whether nothing is wrong with it.
      type: bool
    problems:
      description: What is wrong, as M(dgx_spark.vllm.model_tree_info) says it.
      type: list
      elements: dict
    bytes:
      description: Size of the files that are there.
      type: int
    to_move:
      description: Bytes that must still be written on this node.
      type: int
    manifest:
      description: Sum of the manifest; empty where the model was not staged by this collection.
      type: str
    draft_faults:
      description: What keeps a DFlash draft from loading or from being right, each with file, found, expected, cure.
      type: list
      elements: dict
    unseen:
      description: Files whose content this node has not hashed since they last changed.
      type: list
      elements: str
errors:
  description: RV(models[].draft_faults) of all models, each with host, subject, found, expected and cure.
  returned: success
  type: list
  elements: dict
disk_free:
  description: Bytes that the connecting user can still write below the root.
  returned: success
  type: int
rsync:
  description: Path of rsync; empty where it is not installed.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_rsync import rsync_path
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_state import draft_errors, states
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import disk_free


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "models": {"type": "list", "elements": "dict", "required": True},
            "speculative": {"type": "dict", "default": {}},
            "host": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    root = module.params["root"]
    try:
        models = states(root, module.params["models"], module.params["speculative"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    errors = draft_errors(module.params["host"], models)
    module.exit_json(changed=False, models=models, errors=errors, disk_free=disk_free(root), rsync=rsync_path())


if __name__ == "__main__":
    main()
