#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repair a release; the thinking is in module_utils/_engine_repair.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_repair
short_description: Put back files of a release that differ from its manifest
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Finds the files of a release that are not as its manifest says, and puts each back out of the wheel it came from.
    Files that are in order are not touched.
  - Files that a patch had changed come back as shipped; M(dgx_spark.vllm.source_patch) patches them again.
options:
  root:
    description: Folder of the deployment on the node.
    type: path
    required: true
  id:
    description: Name of the release.
    type: str
    required: true
  wheelhouse:
    description: Folder that M(dgx_spark.vllm.engine_wheelhouse) filled.
    type: path
    required: true
  deep:
    description: Hash every file, instead of only those whose size or time is not as the manifest says.
    type: bool
    default: false
  paths:
    description: What is known to differ, relative to the release. Nothing else is read then.
    type: list
    elements: str
    default: []
  wait_s:
    description: How long to wait for another process that works on the release (seconds).
    type: int
    default: 1800
extends_documentation_fragment: [ansible.builtin.action_common_attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: Repair what a deep check finds
  dgx_spark.vllm.engine_repair:
    root: "{{ deployment.root }}"
    id: 0f6a2c11d9e84b75
    wheelhouse: "{{ deployment.root }}/wheelhouse/0f6a2c11d9e84b75"
    deep: true
"""

RETURN = r"""
repaired:
  description: The files that differed, each with path, package, problem, expected and found sum.
  returned: success
  type: list
  elements: dict
"""

import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_build import BuildError
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_repair import repair
from ansible_collections.dgx_spark.vllm.plugins.module_utils._release import BusyError


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "id": {"type": "str", "required": True},
            "wheelhouse": {"type": "path", "required": True},
            "deep": {"type": "bool", "default": False},
            "paths": {"type": "list", "elements": "str", "default": []},
            "wait_s": {"type": "int", "default": 1800},
        },
        supports_check_mode=True,
    )
    args = module.params
    try:
        found = repair(
            Path(args["root"]),
            args["id"],
            Path(args["wheelhouse"]),
            args["deep"],
            args["paths"],
            args["wait_s"],
            module.check_mode,
        )
    except (BuildError, BusyError, OSError, ValueError, subprocess.SubprocessError) as exc:
        module.fail_json(msg=str(exc))
    lines = "".join(f"{item.package}: {item.path}: {item.problem}\n" for item in found)
    module.exit_json(
        changed=bool(found),
        repaired=[item._asdict() for item in found[:200]],
        diff={"before": lines, "after": ""},
    )


if __name__ == "__main__":
    main()
