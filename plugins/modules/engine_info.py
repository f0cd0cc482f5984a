#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at a release on a node; the thinking is in module_utils/_engine_state.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_info
short_description: Say what there is of the engine on a node
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Reports the state of one release of the engine, how its files differ from its manifest, which patches it has, which
    releases there are beside it and what of the distribution it needs and lacks.
  - Writes nothing and needs no privilege.
options:
  root:
    description: Folder of the deployment on the node.
    type: path
    required: true
  id:
    description: Name of the release. May be empty where there is no lock yet.
    type: str
    default: ""
  path:
    description: Folder of an environment that was made by somebody else, to look at instead of a release.
    type: path
  deep:
    description: Hash every file, instead of only those whose size or time is not as the manifest says.
    type: bool
    default: false
  packages:
    description:
      - Packages of the distribution by what they hold, the name of a shared library (C(libnuma.so.1)) or of a program
        (C(rsync)). Those whose part is not there are reported.
    type: dict
    default: {}
  files_of:
    description: Packages whose files are reported one by one, to be compared with another node's.
    type: list
    elements: str
    default: []
  sysroot:
    description: Directory that stands for C(/) where libraries are looked for.
    type: path
    default: /
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
- name: Check every byte of a release
  dgx_spark.vllm.engine_info:
    root: "{{ deployment.root }}"
    id: 0f6a2c11d9e84b75
    deep: true
"""

RETURN = r"""
state:
  description: C(absent), C(partial) (no manifest), C(damaged) (files differ from the manifest) or C(ready).
  returned: success
  type: str
  sample: ready
differences:
  description: Files that are not as the manifest says, each with path, package, problem, expected and found sum.
  returned: success
  type: list
  elements: dict
digest:
  description: One sum over all files that must be the same on every node.
  returned: success
  type: str
packages:
  description: Version and sum of each package.
  returned: success
  type: dict
nccl:
  description: The library of NCCL that a rank loads, with C(version), C(path) and C(sha256).
  returned: success
  type: dict
missing_packages:
  description: Packages of the distribution to install.
  returned: success
  type: list
  elements: str
patches:
  description: What is known of each patch that was decided on for this release.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_state import look_at


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "id": {"type": "str", "default": ""},
            "path": {"type": "path"},
            "deep": {"type": "bool", "default": False},
            "packages": {"type": "dict", "default": {}},
            "files_of": {"type": "list", "elements": "str", "default": []},
            "sysroot": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    args = module.params
    state = look_at(
        args["root"], args["id"], args["path"], args["deep"], args["packages"], args["files_of"], args["sysroot"]
    )
    module.exit_json(changed=False, **state)


if __name__ == "__main__":
    main()
