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
    description:
      - Hash every file that has a sum, on all cores. The sums are those of O(manifest), else of the manifest that the
        role C(models) keeps beside the models, else those that the hub's own client left.
      - Goes on where an earlier check was cut, and shows how far it is.
    type: bool
    default: false
  manifest:
    description: A manifest (JSON with C(files), each with C(path), C(size), C(sha256)) to compare with.
    type: path
  wait:
    description: Come back when the work is done. The action plugin of the same name sets it to false and watches.
    type: bool
    default: true
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
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import jobs_folder, load_manifest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_verify import judge
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import JobError, run_here, start


def run(args: dict[str, Any]) -> dict[str, Any]:
    """Judge the folder, or begin to."""
    path, deep = Path(args["path"]), args["deep"]
    manifest = load_manifest(Path(args["manifest"])) if args["manifest"] else None
    if args["manifest"] and not manifest:
        raise JobError(f"{args['manifest']} is not a manifest that can be read")
    title = f"checking {path.name}"
    if args["wait"] or not deep:
        return {"changed": False, **run_here(title, lambda job: judge(str(path), manifest, deep, job))}
    folder = jobs_folder(path.parent)
    folder.mkdir(parents=True, exist_ok=True)
    job = start(folder, f"deep.{path.name}", title, lambda job: judge(str(path), manifest, deep, job), manifest)
    return {"changed": False, "job": job}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "deep": {"type": "bool", "default": False},
            "manifest": {"type": "path"},
            "wait": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module.params))
    except (JobError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
