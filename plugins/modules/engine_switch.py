#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a release current; the thinking is in module_utils/_release.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_switch
short_description: Make a release of the engine the current one
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Lets C(current) point to a release in one step, remembers what it pointed to, and deletes old releases that nothing
    needs any more.
  - Touches no unit. What a unit runs is named in the unit.
options:
  root:
    description: Folder of the deployment on the node.
    type: path
    required: true
  path:
    description: Folder of the release.
    type: path
    required: true
  keep:
    description: How many of the releases that were current before stay. A negative number keeps all.
    type: int
    default: -1
  unit_dir:
    description: Folder of the units. A release that a unit there or a running process names is never deleted.
    type: path
    required: true
  keep_wheels:
    description: Whether the wheels stay on this node, to repair from. Otherwise they are brought again when needed.
    type: bool
    default: true
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
- name: Make the release current
  dgx_spark.vllm.engine_switch:
    root: "{{ deployment.root }}"
    path: "{{ engine_release.path }}"
    unit_dir: "{{ deployment.unit_dir }}"
"""

RETURN = r"""
before:
  description: Path of the release that was current.
  returned: success
  type: str
removed:
  description: Names of the releases that were deleted.
  returned: success
  type: list
  elements: str
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._release import (
    current,
    drop_wheels,
    make_current,
    prunable,
    remove,
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "keep": {"type": "int", "default": -1},
            "unit_dir": {"type": "path", "required": True},
            "keep_wheels": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    args = module.params
    root, path = Path(args["root"]), args["path"]
    before = current(root)
    if not module.check_mode and not Path(path).is_dir():
        module.fail_json(msg=f"{path} is not there; a release must be built before it can be made current")
    changed, removed = before != os.path.realpath(path), []
    try:
        if not module.check_mode:
            changed = make_current(root, path)
            removed = prunable(root, args["keep"], Path(args["unit_dir"])) if args["keep"] >= 0 else []
            for name in removed:
                remove(root, name)
            if not args["keep_wheels"]:
                drop_wheels(root)
    except OSError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(
        changed=changed or bool(removed),
        before=before,
        removed=removed,
        diff={"before": f"current -> {before}\n", "after": f"current -> {path}\n"},
    )


if __name__ == "__main__":
    main()
