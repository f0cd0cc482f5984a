# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the patch on the controller and hand it to the module on the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils._source_patch import PatchError, parse

BUNDLED = Path(__file__).resolve().parents[2] / "roles" / "patches" / "files"


class ActionModule(ActionBase):
    """The action behind M(dgx_spark.vllm.source_patch)."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Find and parse the patch, then run the module."""
        super().run(tmp, task_vars)
        args = dict(self._task.args)
        patch = str(args.get("patch", ""))
        base = Path(self._loader.get_basedir())
        if "/" in patch or patch.endswith(".toml"):
            candidates = [base / Path(patch).expanduser()]
        else:
            folders = [base / Path(str(item)).expanduser() for item in args.get("patch_dirs") or []]
            candidates = [folder / f"{patch}.toml" for folder in [*folders, BUNDLED]]
        path = next((item for item in candidates if item.is_file()), None)
        if path is None:
            return {"failed": True, "msg": f"no patch {patch!r}: not in {', '.join(map(str, candidates))}"}
        content = path.read_bytes()
        try:
            parse(path.stem, content)
        except PatchError as exc:
            return {"failed": True, "msg": str(exc)}
        args["patch_content"] = content.decode()
        result: dict[str, Any] = self._execute_module(module_args=args, task_vars=task_vars)
        return result
