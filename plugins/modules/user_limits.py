#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give a user's units locked memory; the thinking is in module_utils/_user_limits.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: user_limits
short_description: Let a user's units lock memory, and keep a way to log in when memory is short
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Lifts the limit that PAM gives to the user's systemd, and restarts that one where nothing of the deployment would
    end with it. Where something would, the limit comes with the next boot or the next run after a stop.
  - Where the platform does not let root lift the limit, nothing is written and a warning says so.
  - Runs as root.
options:
  user:
    description: Name of the user.
    type: str
    required: true
  uid:
    description: Number of the user.
    type: int
    required: true
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
- name: Let units lock memory
  dgx_spark.vllm.user_limits:
    user: spark
    uid: 1000
  become: true
"""

RETURN = r"""
memlock:
  description: What the user's systemd may lock at the end, in bytes; null for all it wants, absent where none runs.
  returned: success
  type: int
pending:
  description: Why the limit does not hold yet, empty where it does.
  returned: success
  type: str
"""

import os
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _user_limits as limits
from ansible_collections.dgx_spark.vllm.plugins.module_utils._file_set import FileSetError, apply, diff, parse, plan
from ansible_collections.dgx_spark.vllm.plugins.module_utils._node_proc import processes

RESTART_S = 90


def _manager_limit(uid: int) -> tuple[bool, int | None]:
    """Whether the user's systemd runs, and its hard limit."""
    pid = limits.manager_of(uid, processes())
    if not pid:
        return False, None
    return True, limits.memlock_hard(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))


def _systemctl(*args: str) -> None:
    subprocess.run(["/usr/bin/systemctl", *args], check=True, timeout=RESTART_S, capture_output=True)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"user": {"type": "str", "required": True}, "uid": {"type": "int", "required": True}},
        supports_check_mode=True,
    )
    user, uid = module.params["user"], module.params["uid"]
    if os.getuid() != 0:
        module.fail_json(msg="this module runs as root: it writes under /etc")
    able = limits.can_raise()
    files = [{"path": limits.SSH_FILE, "content": limits.SSH_TEXT}]
    files += [{"path": limits.LIMITS_FILE, "content": limits.limits_text(user)}] if able else []
    pending = "" if able else "this platform does not let root lift the limit of locked memory (setrlimit is refused)"
    try:
        changes = plan(parse(files, [], [{"path": limits.SSH_FILE.parent, "mode": "0755"}], (0, 0)))
        if changes and not module.check_mode:
            apply(changes, lambda _: None)
            _systemctl("daemon-reload")
        running, memlock = _manager_limit(uid)
        restart = able and running and memlock is not None
        if restart and (alive := limits.ours(uid, processes())):
            restart = False
            pending = f"{alive[0].unit} runs; the limit comes with the next boot, or with the next run after stop.yml"
        if restart and not module.check_mode:
            # Sessions live outside of it; what dies is what the user's systemd has started, which is nothing of ours.
            _systemctl("restart", f"user@{uid}.service")
            running, memlock = _manager_limit(uid)
            if memlock is not None:
                pending = f"user@{uid} still has {memlock} bytes after its restart; look for pam_limits in /etc/pam.d"
    except (FileSetError, OSError, ValueError, subprocess.SubprocessError) as err:
        module.fail_json(msg=f"limits of {user}: {err}")
    if pending:
        module.warn(f"locked memory of {user}: {pending}")
    module.exit_json(changed=bool(changes) or restart, memlock=memlock, pending=pending, diff=diff(changes))


if __name__ == "__main__":
    main()
