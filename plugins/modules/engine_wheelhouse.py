#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fill a wheelhouse; the thinking is in module_utils/_engine_fetch.py and module_utils/_engine_lock.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_wheelhouse
short_description: Fetch the wheels that a lock names, once
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Makes a folder hold exactly the wheels that a lock names for one kind of node, every one verified by its hash.
  - A fetch that was cut goes on from where it was. Wheels that other folders hold are taken from there.
  - Runs where the network is, on the controller or on the head.
options:
  dest:
    description: The wheelhouse.
    type: path
    required: true
  locks:
    description: Lock files, a later one replacing packages of an earlier one.
    type: list
    elements: path
    required: true
  uv_lock:
    description: Lock file of uv itself, whose wheel is brought along.
    type: path
    required: true
  sources:
    description: Folder of the sources of wheels that ship with the role.
    type: path
    required: true
  python:
    description: Minor version of Python on the nodes, as C(3.12).
    type: str
    required: true
  arch:
    description: Architecture of the nodes, as C(uname -m) says it.
    type: str
    required: true
  glibc:
    description: Version of the C library of the nodes.
    type: list
    elements: int
    default: [2, 39]
  seeds:
    description: Further folders to take wheels from before the network is asked. They need not exist.
    type: list
    elements: path
    default: []
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
- name: Fetch the wheels of a lock on the controller
  dgx_spark.vllm.engine_wheelhouse:
    dest: ~/.cache/dgx-spark-vllm/wheelhouse/0f6a2c11d9e84b75
    locks: [pylock.cpu.toml]
    uv_lock: pylock.uv.toml
    sources: wheels
    python: "3.13"
    arch: x86_64
  delegate_to: localhost
"""

RETURN = r"""
fetched_bytes:
  description: Bytes that came over the network.
  returned: success
  type: int
seeded_bytes:
  description: Bytes that were taken from other folders.
  returned: success
  type: int
kept_bytes:
  description: Bytes that were there already.
  returned: success
  type: int
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_fetch import FetchError, fetch, missing
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_lock import LockError
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_tags import Target
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_wheelhouse import contents, write_lists


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "locks": {"type": "list", "elements": "path", "required": True},
            "uv_lock": {"type": "path", "required": True},
            "sources": {"type": "path", "required": True},
            "python": {"type": "str", "required": True},
            "arch": {"type": "str", "required": True},
            "glibc": {"type": "list", "elements": "int", "default": [2, 39]},
            "seeds": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    args = module.params
    dest = Path(args["dest"])
    target = Target(args["python"], args["arch"], (args["glibc"][0], args["glibc"][1]))
    try:
        house = contents([Path(path) for path in args["locks"]], Path(args["uv_lock"]), Path(args["sources"]), target)
        if module.check_mode:
            absent = missing(house.all, dest)
            module.exit_json(changed=bool(absent), missing_bytes=sum(wheel.size for wheel in absent))
        seeds = [path for item in args["seeds"] for path in [Path(item), *sorted(Path(item).glob("*/"))]]
        lists = write_lists(house, dest)
        result = fetch(house.all, dest, [seed for seed in seeds if seed != dest], house.built, keep=lists)
    except (LockError, FetchError, OSError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(
        changed=bool(result.fetched or result.seeded),
        fetched_bytes=result.fetched,
        seeded_bytes=result.seeded,
        kept_bytes=result.kept,
    )


if __name__ == "__main__":
    main()
