# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring together the models of all nodes and the cards that use them; the thinking is in module_utils."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card import card_info
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_error import CardFaultError
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_list import table

BUNDLED = Path(__file__).resolve().parents[2] / "cards"


class ActionModule(ActionBase):
    """Runs in the controller's process: every input is there already."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the table, and for each model the cards that name it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables, args = task_vars or {}, self._task.args
        hostvars = variables["hostvars"]
        base = Path(self._loader.get_basedir())
        folders = [*(base / Path(folder).expanduser() for folder in args.get("cards_path") or []), BUNDLED]
        # The card of every host of the inventory, also of those that this run leaves out.
        named = {str(hostvars[host]["model_card"]) for host in hostvars if "model_card" in hostvars[host]}
        used: dict[str, list[str]] = {}
        faults = []
        for name in sorted(named | {str(card) for card in args.get("cards") or []}):
            local = base / Path(name).expanduser()
            try:
                found = card_info(str(local) if name.endswith(".toml") and local.exists() else name, folders)
            except CardFaultError as error:
                faults.append(f"{name}: {error}")
                continue
            for model in found["models"]:
                used.setdefault(str(model["name"]), []).append(str(found["name"]))
        if faults:
            text = "\n".join(faults)
            return result | {"failed": True, "msg": f"cards that cannot be read, so that use is not known:\n{text}"}
        listed = str(args["list_variable"])
        hosts = {host: hostvars[host][listed]["models"] for host in args["hosts"] if listed in hostvars[host]}
        return result | {"changed": False, "used": used, "table": table(hosts, used)}
