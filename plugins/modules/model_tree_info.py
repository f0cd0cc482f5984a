#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge one model folder; the thinking is in module_utils/_model_tree.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_tree_info
short_description: Say whether a model folder is complete, and what is wrong with it
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Judges a folder of safetensors by configuration, index, headers and sizes, in a fraction of a second, and on
    demand by the sums of all files on all cores.
  - An incomplete folder is a result, not a failure.
options:
  path:
    description: The model's folder.
    type: path
    required: true
  deep:
    description: Hash every file that O(manifest) has a sum for.
    type: bool
    default: false
  manifest:
    description: A manifest (JSON with C(files), each with C(path), C(size), C(sha256)) to compare with.
    type: path
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
- name: Look at the model
  dgx_spark.vllm.model_tree_info:
    path: /home/spark/models/Laguna-S-2.1-FP8
  register: tree

- name: Stop where it is not complete
  ansible.builtin.assert:
    that: tree.complete
"""

RETURN = r"""
complete:
  description: Whether nothing is wrong.
  returned: success
  type: bool
problems:
  description: Everything that is wrong.
  returned: success
  type: list
  elements: dict
  contains:
    file:
      description: Path below the folder.
      type: str
    kind:
      description:
        - One of absent, not_a_folder, no_config, bad_config, no_weights, no_index, bad_index, foreign_index,
          absent_shard, foreign_shard, truncated, trailing, bad_header, incomplete_file, empty_file, dangling_link,
          not_a_file, unreadable, absent_file, wrong_size, wrong_hash.
      type: str
    found:
      description: What was found.
      type: str
    expected:
      description: What was expected.
      type: str
  sample:
    - file: model-00017-of-00024.safetensors
      kind: truncated
      found: 4831838208 bytes
      expected: 5033164800 bytes, by its own header
bytes:
  description: Size of all files.
  returned: success
  type: int
shards:
  description: Number of safetensors files.
  returned: success
  type: int
notes:
  description: What is unusual and harmless.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree import check
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_deep import check_sums
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import load_manifest


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "deep": {"type": "bool", "default": False},
            "manifest": {"type": "path"},
        },
        required_if=[("deep", True, ("manifest",))],
        supports_check_mode=True,
    )
    args = module.params
    manifest = load_manifest(Path(args["manifest"])) if args["manifest"] else {}
    if args["manifest"] and not manifest:
        module.fail_json(msg=f"{args['manifest']} is not a manifest that can be read")
    tree = check(args["path"], manifest)
    if args["deep"]:
        tree.problems += check_sums(Path(args["path"]), tree, manifest)
    module.exit_json(
        changed=False,
        complete=tree.complete,
        problems=tree.problems,
        bytes=tree.bytes,
        shards=tree.shards,
        notes=tree.notes,
    )


if __name__ == "__main__":
    main()
