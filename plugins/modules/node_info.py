#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probe a node; the thinking is in module_utils/_host_facts.py and module_utils/_roce.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Say what a node is, in one probe
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Reads what the roles must know of a node before they decide anything, among it the user, the operating system,
    memory, free disk, linger, limits, listening ports, driver, CUDA compiler, the current release and the RDMA fabric.
  - Needs no privilege, writes nothing.
options:
  root:
    description: Directory that stands for C(/) in all reads of files.
    type: path
    default: /
  unit_path:
    description: The PATH in which programs are looked for; it is that of the units, not that of a login shell.
    type: str
    default: /usr/local/cuda/bin:/usr/bin:/bin
  disk_paths:
    description: Folders whose free space is reported, absolute or relative to the home folder. They need not exist.
    type: list
    elements: str
    default: ["."]
  state_root:
    description: Folder of the deployment, relative to the home folder.
    type: str
    default: .local/share/dgx-spark-vllm
  models_root:
    description:
      - Folder of the models, absolute or relative to the home folder. What the C(config.json) of each model says is
        returned in C(configs). Empty for none.
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
- name: Probe the node
  dgx_spark.vllm.node_info:
  register: node
"""

RETURN = r"""
node:
  description: What was found. Sizes are in bytes.
  returned: success
  type: dict
  sample:
    user: spark
    uid: 1000
    home: /home/spark
    arch: aarch64
    kernel: 6.11.0-1016-nvidia
    linger: true
    memory: {total: 128469319680, available: 121332826112}
    gpus: [{name: NVIDIA GB10, driver: 580.95.05, compute_cap: "12.1"}]
    nvcc: "13.0"
    systemd: 255
    unit_files: {user: [vllm-serve.service], system: []}
    configs: {Laguna-S-2.1-FP8: {num_hidden_layers: 48}}
    measured: {kv_tokens: 273095, contexts: 1.04, start_sha256: 5f2b...}
fabric:
  description: The RDMA devices, their GID tables and the network devices, read as M(dgx_spark.vllm.roce_gid_info) does.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._host_facts import UNIT_PATH, probe
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce import read


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "unit_path": {"type": "str", "default": UNIT_PATH},
            "disk_paths": {"type": "list", "elements": "str", "default": ["."]},
            "state_root": {"type": "str", "default": ".local/share/dgx-spark-vllm"},
            "models_root": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    args = module.params
    node = probe(args["root"], args["unit_path"], args["disk_paths"], args["state_root"], args["models_root"])
    module.exit_json(changed=False, node=node, fabric=read(args["root"]))


if __name__ == "__main__":
    main()
