#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_plan
short_description: Plan the release of the engine for a host
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Reads the locks and patches on the controller, names the release that follows from them, looks at the node once, and
    says what is to be done and what stands in the way. Changes nothing.
options:
  deployment:
    description: The fact that the role C(deployment) sets.
    type: dict
    required: true
  variant:
    description: Row of the table of variants.
    type: str
    required: true
  variants:
    description: The table of variants.
    type: dict
    required: true
  lock_dirs:
    description: Folders on the controller in which locks are looked for, the first that has one winning.
    type: list
    elements: path
    required: true
  nccl:
    description: Version of NCCL instead of the one that the lock holds.
    type: str
    default: ""
  adopt:
    description: Folder of an environment on the node to use as it is.
    type: str
    default: ""
  deep:
    description: Hash every file of the release.
    type: bool
    default: false
  cuda_install:
    description: The CUDA toolkit is to be installed where it lacks, so that is no fault.
    type: bool
    default: false
  programs:
    description: Programs of the distribution that the role itself needs on this node.
    type: list
    elements: str
    default: []
  controller_programs:
    description: Programs that the role needs on the controller where wheels are to be brought.
    type: list
    elements: str
    default: []
  patches:
    description: Names of the patches that the release must have.
    type: list
    elements: str
    default: []
  patch_dirs:
    description: Folders on the controller in which patches are looked for.
    type: list
    elements: path
    required: true
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
attributes:
  action:
    support: full
  async:
    support: none
  bypass_host_loop:
    support: none
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: Plan the release and look at the node
  dgx_spark.vllm.engine_plan:
    deployment: "{{ deployment }}"
    variant: cu130
    variants: "{{ engine_variants_known }}"
    lock_dirs: ["{{ inventory_dir }}/locks"]
    patch_dirs: []
  register: engine_release
"""

RETURN = r"""
id:
  description: Name of the release; empty where there is no lock yet.
  returned: success
  type: str
  sample: 0f6a2c11d9e84b75
path:
  description: Folder of the release on the node.
  returned: success
  type: str
environment:
  description: PATH and the like of a unit that runs the release.
  returned: success
  type: dict
expected:
  description: Versions that the release must say of itself.
  returned: success
  type: dict
node:
  description: What M(dgx_spark.vllm.engine_info) found.
  returned: success
  type: dict
todo:
  description: Steps that are to be done on this host.
  returned: success
  type: list
  elements: str
  sample: [build, patch, switch]
faults:
  description: Errors and warnings about this host.
  returned: success
  type: dict
"""
