# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A variant of a few megabytes, so that installing it twenty times takes minutes: a row of the table like any other.

Everything that installs it is the real thing; only what is inside the packages is not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_lock
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_tags import Target

from tests.unit.plugins import engine_makers as makers

ROW = {
    "requirements": [],
    "overrides": [],
    "indexes": [],
    "exclude_newer": "",
    "local_wheels": [],
    "architectures": ["x86_64", "aarch64"],
    "driver_min": "",
    "toolkit_min": "",
    "validated": "0.25.1",
    "torch_cuda": "13.0",
    "nccl_package": "none",
    "libraries": {},
    "imports": ["ray"],
    "programs": [],
}
LAGUNA = """
class DFlashLagunaModel:
    def load_weights(self, weights):
        for name, loaded_weight in weights:
            if self.quant_config is not None and (
                scale_name := self.quant_config.get_cache_scale(name)
            ):
                continue
"""


def lock(folder: Path, number: int, base: str = "") -> Path:
    """A folder with the lock of the variant `tiny`; another number makes another release. Returns the folder.

    base: where a server offers `folder`; without it the wheels are fetched as files.
    """
    ray = {f"ray/part_{n}.py": f"VALUE = {number * n}\n" * 50 for n in range(300)}
    vllm = {**makers.FILES["vllm"], "vllm/model_executor/models/laguna_dflash.py": LAGUNA}
    torch = {**makers.FILES["torch"], "torch/lib/libtorch.so": f"{number}" * 3_000_000}
    contents = {"ray": {"ray/__init__.py": "", **ray}, "vllm": vllm, "torch": torch}
    wheels = []
    for name, files in contents.items():
        path = makers.wheel(folder / "wheels" / str(number), name, makers.VERSIONS[name], files)
        url = f"{base}/{path.relative_to(folder).as_posix()}" if base else path.resolve().as_uri()
        wheels.append(makers.describe(path, url))
    locks = folder / f"locks-{number}"
    locks.mkdir(parents=True, exist_ok=True)
    target = Target("3.13", "x86_64", (2, 41))
    text = _engine_lock.merge([(target, makers.pylock(wheels).encode())], [], {"variant": "tiny"})
    (locks / "pylock.tiny.toml").write_bytes(text)
    return locks


def variables(locks: Path, **more: Any) -> str:
    """What ansible-playbook is told with --extra-vars."""
    own = {"engine_variant": "tiny", "engine_variants_extra": {"tiny": ROW}, "engine_lock_dir": str(locks)}
    return json.dumps({**own, "engine_wheelhouse": "controller", **more})


def release_of(locks: Path) -> str:
    """The name of the release that a lock makes."""
    sha256 = _engine_lock.read([locks / "pylock.tiny.toml"]).sha256
    return _engine_lock.release_id(sha256, "tiny", "3.13")
