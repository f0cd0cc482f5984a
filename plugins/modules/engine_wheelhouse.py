#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fill a wheelhouse; the thinking is in module_utils/_engine_fetch.py and module_utils/_engine_wheelhouse.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_wheelhouse
short_description: Fetch the wheels that a lock names, once
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Makes a folder hold exactly the wheels that a lock names for one kind of node, every one verified by its hash.
  - A fetch that was cut goes on from where it was. Wheels that other folders hold are taken from there.
  - Works in the background and shows how far it is. What was begun goes on for two minutes after a play was killed, and
    is found again by the next.
  - Runs where the network is, on the controller or on the head, and with O(mirror) on the other nodes. The locks are
    read on the controller.
options:
  dest:
    description: The wheelhouse.
    type: path
    required: true
  locks:
    description: Lock files on the controller, a later one replacing packages of an earlier one.
    type: list
    elements: path
  uv_lock:
    description: Lock file of uv itself on the controller, whose wheel is brought along.
    type: path
  sources:
    description: Folder on the controller with the sources of wheels that ship with the role.
    type: path
  python:
    description: Minor version of Python on the nodes, as C(3.12).
    type: str
  arch:
    description: Architecture of the nodes, as C(uname -m) says it.
    type: str
  glibc:
    description: Version of the C library of the nodes.
    type: list
    elements: int
    default: [2, 39]
  listing:
    description: What an earlier task of this module returned, instead of the locks.
    type: dict
  mirror:
    description: Where M(dgx_spark.vllm.engine_offer) offers the files, instead of the addresses that the lock names.
    type: str
  only:
    description: Bring these packages only, and leave everything else in the folder as it is.
    type: list
    elements: str
    default: []
  seeds:
    description: Further folders to take wheels from before the network is asked. They need not exist.
    type: list
    elements: path
    default: []
  reserve:
    description: Bytes that stay free on the disk.
    type: int
    default: 1073741824
  built:
    description: Contents of the wheels that are built on the controller. Set by the action plugin; not for playbooks.
    type: dict
    default: {}
  wait:
    description: Come back when all is there. The action plugin of the same name sets it to false and watches.
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
listing:
  description: What the folder holds, for further tasks of this module.
  returned: success
  type: dict
"""

import base64
import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_fetch import (
    FetchError,
    fetch,
    missing,
    require_space,
)
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_wheelhouse import listed, mirrored, write_lists
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job, JobError, run_here, start


def run(args: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Fill it, begin to, or say what is missing."""
    dest, only, mirror = Path(args["dest"]), set(args["only"]), args["mirror"]
    if not args["listing"]:
        raise JobError("no listing: the action plugin of the same name makes it from the locks")
    wheels, uv = listed(args["listing"])
    wanted = [wheel for wheel in [*wheels, uv] if not only or wheel.package in only]
    absent = missing(wanted, dest)
    if check_mode:
        return {"changed": bool(absent), "missing_bytes": sum(wheel.size for wheel in absent)}
    built = {name: base64.b64decode(content) for name, content in args["built"].items()}
    seeds = [path for item in args["seeds"] for path in [Path(item), *sorted(Path(item).glob("*/"))]]
    if mirror:
        # A proxy of the user's has no business on the fabric.
        os.environ["no_proxy"] = "*"
        wanted = [mirrored(wheel, mirror) for wheel in wanted]

    def work(job: Job) -> dict[str, Any]:
        try:
            require_space(absent, dest, args["reserve"])
            lists = write_lists(wheels, uv, dest)
            others = [seed for seed in seeds if seed != dest]
            result = fetch(wanted, dest, others, built, lists, not only, job.meter, job.stop)
        except (FetchError, OSError) as exc:
            raise JobError(str(exc)) from exc
        return {
            "changed": bool(result.fetched or result.seeded),
            "fetched_bytes": result.fetched,
            "seeded_bytes": result.seeded,
            "kept_bytes": result.kept,
        }

    title = "taking wheels from the head" if mirror else "fetching wheels"
    if args["wait"] or not absent:
        return run_here(title, work)
    spec = {key: value for key, value in args.items() if key != "wait"}
    return {"changed": False, "job": start(dest.parent / ".jobs", dest.name, title, work, spec)}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "locks": {"type": "list", "elements": "path"},
            "uv_lock": {"type": "path"},
            "sources": {"type": "path"},
            "python": {"type": "str"},
            "arch": {"type": "str"},
            "glibc": {"type": "list", "elements": "int", "default": [2, 39]},
            "listing": {"type": "dict"},
            "mirror": {"type": "str"},
            "only": {"type": "list", "elements": "str", "default": []},
            "seeds": {"type": "list", "elements": "path", "default": []},
            "reserve": {"type": "int", "default": 1 << 30},
            "built": {"type": "dict", "default": {}},
            "wait": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module.params, module.check_mode))
    except (JobError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
