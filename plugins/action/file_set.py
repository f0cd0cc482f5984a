# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the files of the controller that a file set names, and hands their contents to the module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Replaces `src` by `content`, and `src_dirs` by one entry a file."""

    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module of the same name with contents in place of names."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        files = [dict(entry) for entry in args.get("files") or []]
        for rule in args.pop("src_dirs", None) or []:
            found = sorted(path for path in Path(rule["src"]).glob(rule["pattern"]) if path.is_file())
            if not found:
                raise AnsibleActionFail(f"no file of the controller matches {rule['src']}/{rule['pattern']}")
            files += [{"path": f"{rule['dest']}/{path.name}", "src": str(path)} for path in found]
        for entry in files:
            source = entry.pop("src", None)
            if source is not None:
                entry["content"] = Path(source).read_text(encoding="utf-8")
        args["files"] = files
        module = self._execute_module(module_name="dgx_spark.vllm.file_set", module_args=args, task_vars=task_vars)
        result.update(module)
        return result
