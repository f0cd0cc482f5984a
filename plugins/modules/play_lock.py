#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let one play at a time change a deployment; the thinking is in module_utils/_play_lock.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: play_lock
short_description: Let one play at a time change a deployment
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Takes or releases a lock that is a file on the head. A run that has it already keeps it.
  - A lock whose run is gone no longer counts, so a run that was killed hinders nobody. Who it is that holds it is found
    out on the controller and handed over by the action plugin of the same name.
options:
  path:
    description: The file.
    type: path
    required: true
  state:
    description: Whether to take or to release it.
    type: str
    choices: [taken, released]
    default: taken
  force:
    description: Take it from whoever has it.
    type: bool
    default: false
  own:
    description: Who asks. The action plugin fills it in.
    type: dict
extends_documentation_fragment: [ansible.builtin.action_common_attributes]
attributes:
  check_mode:
    support: full
    details: Looks whether somebody else has the lock, and takes none.
  diff_mode:
    support: none
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: Take the lock
  dgx_spark.vllm.play_lock:
    path: /home/spark/.local/share/dgx-spark-vllm/state/play.lock
"""

RETURN = r"""
note:
  description: What is to be said about an earlier holder.
  returned: success
  type: str
  sample: ""
"""

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _play_lock as lock


def main() -> None:
    """Run the module. It never reports a change: a lock is no part of the declared state."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["taken", "released"], "default": "taken"},
            "force": {"type": "bool", "default": False},
            "own": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    args = module.params
    path, own, note = Path(args["path"]), args["own"] or {}, ""
    if not own.get("process"):
        module.fail_json(msg="own is missing: this module is called through its action plugin")
    try:
        if args["state"] == "released":
            if not module.check_mode:
                lock.release(path, own)
        elif module.check_mode:
            holder = lock.read(path)
            if holder and not lock.same_run(holder, own) and not lock.stale(holder, own, time.time()):
                raise PermissionError(lock.describe(holder))
        else:
            _unused, note = lock.take(path, own, args["force"], time.time())
    except PermissionError as err:
        module.fail_json(
            msg=f"another run is at work on this deployment: {err}. Wait for its end, or run with -e lock_force=true "
            f"if you know that it is none ({path})"
        )
    if note:
        module.warn(note)
    module.exit_json(changed=False, note=note)


if __name__ == "__main__":
    main()
