# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a model card on the controller; the thinking is in module_utils/_card*.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card import card_info
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_error import CardFaultError

ARGUMENTS: dict[str, dict[str, Any]] = {
    "src": {"type": "str", "required": True},
    "overrides": {"type": "dict"},
    "models_root": {"type": "str", "default": ""},
    "nodes": {"type": "int"},
    "node_memory_bytes": {"type": "int"},
    "cards_path": {"type": "list", "elements": "str", "default": []},
    "host": {"type": "str", "default": ""},
    "port": {"type": "int"},
    "master_addr": {"type": "str", "default": ""},
    "configs": {"type": "dict"},
    "measured": {"type": "dict"},
    "listing": {"type": "bool", "default": False},
}
BUNDLED = Path(__file__).resolve().parents[2] / "cards"


class ActionModule(ActionBase):
    """Runs in the controller's process: a card is a file there, and no node is asked."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what follows from the card; a bad card fails with `msg` and `errors`."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(ARGUMENTS)  # type: ignore[no-untyped-call]
        # Paths are meant from where the play stands, as with every module that reads a file of the controller.
        base = Path(self._loader.get_basedir())
        folders = [base / Path(folder).expanduser() for folder in args.pop("cards_path")]
        src = args.pop("src")
        local = base / Path(src).expanduser()
        if ("/" in src or src.endswith(".toml")) and local.exists():
            src = str(local)
        for count in ("nodes", "node_memory_bytes"):
            if args[count] is not None and args[count] < 1:
                raise AnsibleActionFail(f"{count} is {args[count]}: it counts from 1")
        try:
            found = card_info(src, [*folders, BUNDLED], **args)
        except CardFaultError as err:
            result.update(
                failed=True, changed=False, msg=str(err), errors=[problem.as_dict() for problem in err.problems]
            )
            return result
        # Ansible shows `warnings` itself and leaves the key out where there are none.
        result.update(found, changed=False, warnings_found=found["warnings"])
        if args["listing"]:
            del result["warnings"]
        return result
