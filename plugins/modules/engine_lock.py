#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolve a lock; the thinking is in module_utils/_engine_resolve.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_lock
short_description: Resolve a variant of the engine into a lock
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Resolves the requirements of a variant with uv, wheels only, and returns the lock and how it differs from the one
    there is. Writes no lock; keeping it is the caller's work.
  - Runs where the network is. User settings (C(UV_*), C(PIP_*), configuration files) have no influence.
options:
  variant:
    description: Name of the variant, for the lock's own note.
    type: str
    required: true
  row:
    description: The variant's row of the table of variants.
    type: dict
    required: true
  nccl:
    description: Resolve only this version of NCCL, as a lock that replaces the one package.
    type: str
    default: ""
  targets:
    description: Pairs of Python's minor version and architecture that the lock is to serve.
    type: list
    elements: list
    required: true
  index:
    description: The package index that is asked last.
    type: str
    default: https://pypi.org/simple
  uv_lock:
    description: Lock file of uv itself on the controller.
    type: path
    required: true
  sources:
    description: Folder on the controller with the sources of wheels that ship with the role.
    type: path
    required: true
  cache:
    description: Folder for uv and what it keeps.
    type: path
    required: true
  current:
    description: The lock there is, as text, to compare with. Empty for none.
    type: str
    default: ""
  seeds:
    description: Folders to take uv's wheel from before the network is asked. They need not exist.
    type: list
    elements: path
    default: []
  alternatives:
    description: Variants that could be used instead, to be named where this one cannot be resolved.
    type: list
    elements: str
    default: []
  uv_lock_content:
    description: The content of O(uv_lock). Set by the action plugin; not for playbooks.
    type: str
  local:
    description: What the lock says of the wheels that ship as sources. Set by the action plugin; not for playbooks.
    type: list
    elements: list
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
- name: Resolve a lock on the controller
  dgx_spark.vllm.engine_lock:
    variant: cu130
    row: "{{ engine_variants_known.cu130 }}"
    targets: [["3.12", aarch64]]
    uv_lock: pylock.uv.toml
    sources: wheels
    cache: ~/.cache/dgx-spark-vllm/lock
  delegate_to: localhost
"""

RETURN = r"""
content:
  description: The lock.
  returned: success
  type: str
difference:
  description:
    - What it changes, a line a package - added (C(+)), removed (C(-)), another version (C(~)), other wheels (C(!)).
  returned: success
  type: list
  elements: str
  sample: ["~ mcp 1.9.0 -> 2.0.0"]
"""

import platform
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_build import BuildError, install_uv
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_fetch import FetchError, fetch
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_lock import (
    LockError,
    Wheel,
    difference,
    parse,
    select,
)
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_resolve import nccl_row, parse_targets, resolve
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_tags import Target


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "variant": {"type": "str", "required": True},
            "row": {"type": "dict", "required": True},
            "nccl": {"type": "str", "default": ""},
            "targets": {"type": "list", "elements": "list", "required": True},
            "index": {"type": "str", "default": "https://pypi.org/simple"},
            "uv_lock": {"type": "path", "required": True},
            "sources": {"type": "path", "required": True},
            "cache": {"type": "path", "required": True},
            "current": {"type": "str", "default": ""},
            "seeds": {"type": "list", "elements": "path", "default": []},
            "alternatives": {"type": "list", "elements": "str", "default": []},
            "uv_lock_content": {"type": "str"},
            "local": {"type": "list", "elements": "list", "default": []},
        },
        supports_check_mode=True,
    )
    args = module.params
    cache = Path(args["cache"])
    if not args["uv_lock_content"]:
        module.fail_json(msg="no lock of uv: the action plugin of the same name reads it on the controller")
    try:
        # uv does not depend on the interpreter: any target of this machine's architecture names its wheel.
        uv_lock = parse(args["uv_lock_content"].encode(), "uv's lock")
        (wheel,) = select(uv_lock, Target("3.12", platform.machine()), "uv's lock")
        fetch([wheel], cache / "wheel", [Path(seed) for seed in args["seeds"]])
        uv = install_uv(cache, cache / "wheel" / wheel.filename, wheel.version)
        row = nccl_row(args["row"], args["nccl"]) if args["nccl"] else args["row"]
        tool = {"variant": args["variant"], "nccl": args["nccl"], "exclude-newer": row.get("exclude_newer", "")}
        local = [] if args["nccl"] else [Wheel(*item) for item in args["local"]]
        content = resolve(uv, row, parse_targets(args["targets"]), args["index"], cache, local, tool)
        old = parse(args["current"].encode(), "the lock there is") if args["current"] else None
        lines = difference(old, parse(content))
    except (LockError, FetchError, BuildError, OSError) as exc:
        others = (
            f"; a lock is there for engine_variant {' or '.join(args['alternatives'])}" if args["alternatives"] else ""
        )
        module.fail_json(msg=f"variant {args['variant']} cannot be resolved{others}: {exc}")
    module.exit_json(changed=False, content=content.decode(), difference=lines)


if __name__ == "__main__":
    main()
