# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugins that begin a job on a node and show how far it is until it ends (controller only)."""

from __future__ import annotations

import json
import shlex
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import line
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils._model_screen import Screen

EVERY_S = 1.0
FIRST_S = 0.125
# A connection for management that is away for so long is told as a failure; the job itself may go on for its lease.
DEAF_S = 60.0


class ProgressAction(ActionBase):
    """Runs its module with wait=false and watches the job that it names."""

    _supports_check_mode = True
    _supports_async = False
    _supports_diff = False

    module = ""

    def run_job(self, args: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Begin the job and wait for its end; a module that needs no job answers at once."""
        found: dict[str, Any] = self._execute_module(
            module_name=self.module, module_args={**args, "wait": False}, task_vars=variables
        )
        if found.get("failed") or "job" not in found:
            return found
        return self.watch(found["job"], str(variables["inventory_hostname"]))

    def watch(self, job: dict[str, str], host: str) -> dict[str, Any]:
        """Look at the job's status until it has ended."""
        lock, lease, status = (shlex.quote(job[key]) for key in ("lock", "lease", "status"))
        # The lock is free once the job and all its programs are gone, also when it could not say so itself.
        look = f"touch {lease}; flock -n {lock} true && echo free || echo held; cat {status}"
        screen = Screen(host)
        heard = time.monotonic()
        # What takes a moment is not made to take a second.
        pause = FIRST_S
        try:
            while True:
                found = self._look(look)
                if found is not None:
                    heard = time.monotonic()
                    state = found.get("state")
                    if state == "running" and found.get("_lock") != "free":
                        screen.show(line(found))
                    elif state == "done":
                        return {"changed": False, **(found.get("result") or {})}
                    else:
                        text = (
                            found.get("error") or "the job ended without a word: it was killed, or the node restarted"
                        )
                        return {"failed": True, "changed": False, "msg": f"{host}: {text}"}
                elif time.monotonic() - heard > DEAF_S:
                    message = f"{host} has not answered for {DEAF_S:.0f} s; its work goes on for a while: run again"
                    return {"unreachable": True, "changed": False, "msg": message}
                time.sleep(pause)
                pause = min(2 * pause, EVERY_S)
        finally:
            screen.close()

    def _look(self, command: str) -> dict[str, Any] | None:
        """The job's status; None where the node did not answer."""
        try:
            answer = self._low_level_execute_command(command, sudoable=False)
        except AnsibleConnectionFailure:
            self._connection.reset()
            return None
        first, _unused, rest = str(answer.get("stdout") or "").partition("\n")
        try:
            found = json.loads(rest)
        except ValueError:
            return None
        return {**found, "_lock": first.strip()} if isinstance(found, dict) else None
