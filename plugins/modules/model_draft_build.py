#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a W4A16 draft; the thinking is in module_utils/_draft_build.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_draft_build
short_description: Quantize a DFlash draft to W4A16
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Makes a draft with symmetric four-bit weights (compressed-tensors, C(pack-quantized)) from a draft in BF16, on the
    CPU, piece by piece, with the library of the engine's environment.
  - Leaves C(qkv_proj) and C(g_proj) in BF16, writes C(ignore) as regular expressions, reads the result back and
    measures the largest error of every weight, judges the whole as any draft is judged, and only then puts it in place.
  - Refuses a source that is not a complete DFlash draft, or that is quantized already.
options:
  root:
    description: Folder of the models.
    type: path
    required: true
  source:
    description: Folder of the source below O(root).
    type: str
    required: true
  name:
    description: Folder of the result below O(root).
    type: str
    required: true
  quantize:
    description: Regular expressions, each for the whole name of a module in the checkpoint, of what to quantize.
    type: list
    elements: str
  group_size:
    description: How many weights share a scale.
    type: int
    default: 128
  source_repo:
    description: Repository of the source, for the provenance; known where the source was staged by this collection.
    type: str
  source_revision:
    description: Revision of the source, for the provenance.
    type: str
  python:
    description: The engine's Python.
    type: path
    required: true
  program:
    description: The program on the node that quantizes; the role C(draft_builder) installs it.
    type: path
    required: true
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
- name: Build the draft
  dgx_spark.vllm.model_draft_build:
    root: /home/spark/models
    source: Laguna-S-2.1-DFlash-FP8
    name: Laguna-S-2.1-DFlash-W4A16
    python: /home/spark/.local/share/dgx-spark-vllm/current/bin/python
    program: /home/spark/.local/share/dgx-spark-vllm/bin/draft_build.py
"""

RETURN = r"""
errors:
  description: Largest error of each quantized weight, in steps of its scale.
  returned: success, not in check mode
  type: dict
bound:
  description: The largest error that four bits can have.
  returned: when something was built
  type: float
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._draft_build import (
    QUANTIZE,
    Order,
    build,
    is_current,
    require_source,
)
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import jobs_folder
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import JobError, run_here, start


def run(args: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Do it, begin it, or say what it would be."""
    order = Order(
        root=args["root"],
        source=args["source"],
        name=args["name"],
        python=args["python"],
        program=args["program"],
        quantize=args["quantize"] or QUANTIZE,
        group=args["group_size"],
        source_repo=args["source_repo"] or "",
        source_revision=args["source_revision"] or "",
    )
    if is_current(order):
        return {"changed": False, "msg": f"{order.name} was built from this source with these options"}
    if check_mode:
        return {"changed": True, "msg": f"would build {order.name} from {order.source}"}
    require_source(order)
    folder = jobs_folder(args["root"])
    folder.mkdir(parents=True, exist_ok=True)
    title = f"building {order.name}"
    if args["wait"]:
        return run_here(title, lambda job: build(order, job))
    spec = {key: value for key, value in args.items() if key != "wait"}
    return {"changed": False, "job": start(folder, "draft", title, lambda job: build(order, job), spec)}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "source": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "quantize": {"type": "list", "elements": "str"},
            "group_size": {"type": "int", "default": 128},
            "source_repo": {"type": "str"},
            "source_revision": {"type": "str"},
            "python": {"type": "path", "required": True},
            "program": {"type": "path", "required": True},
            "wait": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module.params, module.check_mode))
    except (JobError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
