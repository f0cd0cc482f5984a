# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the locks on the controller, build the small wheels there, and hand both to the module where the network is."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_lock import LockError
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_tags import Target
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_wheelhouse import contents
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils._model_progress import ProgressAction


class ActionModule(ProgressAction):
    """Begins the fetch and watches it; where nothing is missing the module answers at once."""

    module = "dgx_spark.vllm.engine_wheelhouse"

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Say which wheels the target needs, and run the module with that."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        if "listing" not in args:
            try:
                glibc = list(args.pop("glibc", (2, 39)))
                target = Target(str(args.pop("python")), str(args.pop("arch")), (int(glibc[0]), int(glibc[1])))
                locks = [Path(str(path)) for path in args.pop("locks")]
                house = contents(locks, Path(str(args.pop("uv_lock"))), Path(str(args.pop("sources"))), target)
            except KeyError as exc:
                return {"failed": True, "msg": f"{exc} is missing beside locks, uv_lock, sources, python and arch"}
            except (LockError, OSError) as exc:
                return {"failed": True, "msg": str(exc)}
            args["listing"] = house.listing()
            args["built"] = {name: base64.b64encode(content).decode() for name, content in house.built.items()}
        # Wheels that are built here have no address of their own: only who fetches first makes them.
        return {**result, **self.run_job(args, task_vars or {}), "listing": args["listing"]}
