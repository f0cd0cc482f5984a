# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the release of a host: locks and patches are read on the controller, the node is looked at once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_faults, _engine_lock, _engine_plan
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_fetch import sha256_file


class ActionModule(ActionBase):
    """The action behind M(dgx_spark.vllm.engine_plan)."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan, look at the node, and say what is to be done."""
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _unused, args = self.validate_argument_spec(  # type: ignore[no-untyped-call]
            {
                "deployment": {"type": "dict", "required": True},
                "variant": {"type": "str", "required": True},
                "variants": {"type": "dict", "required": True},
                "lock_dirs": {"type": "list", "elements": "path", "required": True},
                "nccl": {"type": "str", "default": ""},
                "adopt": {"type": "str", "default": ""},
                "deep": {"type": "bool", "default": False},
                "cuda_install": {"type": "bool", "default": False},
                "programs": {"type": "list", "elements": "str", "default": []},
                "controller_programs": {"type": "list", "elements": "str", "default": []},
                "patches": {"type": "list", "elements": "str", "default": []},
                "patch_dirs": {"type": "list", "elements": "path", "required": True},
            }
        )
        host = str(task_vars.get("inventory_hostname", ""))
        variant, deployment = args["variant"], args["deployment"]
        node = deployment["node"]
        row = args["variants"].get(variant)
        if row is None:
            known = ", ".join(sorted(args["variants"]))
            return {"failed": True, "msg": f"engine_variant is {variant}, expected one of {known}"}
        adopt = args["adopt"].replace("~", deployment["home"], 1) if args["adopt"].startswith("~") else args["adopt"]
        locks, absent = _engine_plan.find_locks(variant, args["nccl"], [Path(item) for item in args["lock_dirs"]])
        patches, unknown = _engine_plan.find_patches(args["patches"], [Path(item) for item in args["patch_dirs"]])
        if unknown:
            where = ", ".join(args["patch_dirs"])
            return {"failed": True, "msg": f"no patch named {', '.join(unknown)} in {where}"}
        try:
            usable = [] if absent else locks
            plan = _engine_plan.plan(deployment["root"], variant, row, usable, node["python"]["minor"], adopt)
        except _engine_lock.LockError as exc:
            return {"failed": True, "msg": str(exc)}
        state: dict[str, Any] = self._execute_module(
            module_name="dgx_spark.vllm.engine_info",
            module_args={
                "root": deployment["root"],
                "id": plan["id"],
                "path": adopt or None,
                "deep": args["deep"],
                "packages": {**row.get("libraries", {}), **{name: name for name in args["programs"]}},
            },
            task_vars=task_vars,
        )
        if state.get("failed"):
            return dict(state)
        sums = {name: sha256_file(path) for name, path in patches.items()}
        absent_programs = [name for name in args["controller_programs"] if shutil.which(name) is None]
        toolkit = args["cuda_install"] and _engine_faults.toolkit_lacks(row, node)
        errors = _engine_faults.node_faults(host, variant, row, node, [] if adopt else usable, state, toolkit)
        asked = str(deployment["card"].get("engine", {}).get("nccl", ""))
        loads = plan["expected"].get("nccl") or state["nccl"].get("version", "")
        lower, higher = _engine_faults.nccl(host, asked, loads)
        todo = _engine_plan.steps(plan, state, sums, bool(adopt), toolkit)
        return {
            **plan,
            "changed": False,
            "variant": variant,
            "row": row,
            "adopted": bool(adopt),
            "damaged_packages": sorted({item["package"] for item in state["differences"] if item["package"]}),
            "locks": [str(path) for path in locks],
            "absent_locks": absent,
            "lock_names": _engine_plan.lock_names(variant, args["nccl"]),
            "alternatives": _engine_plan.alternatives(
                variant,
                args["variants"],
                node["arch"],
                bool(node["gpus"]),
                [Path(item) for item in args["lock_dirs"]],
            ),
            "patches": {name: str(path) for name, path in patches.items()},
            "patch_texts": {name: path.read_text() for name, path in patches.items()} if adopt else {},
            "node": {key: value for key, value in state.items() if key not in ("changed", "invocation", "warnings")},
            "todo": todo,
            "faults": {
                "errors": errors + lower + _engine_faults.controller(todo, absent_programs),
                "warnings": _engine_faults.validation(row, plan["expected"]) + higher,
            },
        }
