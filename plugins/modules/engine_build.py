#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a release; the thinking is in module_utils/_engine_build.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_build
short_description: Build a release of the engine from a wheelhouse
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Installs the wheels of a wheelhouse into a folder of its own with uv, offline and by hash, checks what came out in
    the environment of a unit, and writes the manifest. A release without a manifest is not taken for one.
  - Changes nothing else; making the release current is the work of M(dgx_spark.vllm.engine_switch).
  - Works in the background and shows how far it is. A build that was begun goes on when the controller goes away, and
    is found again by the next play.
  - User settings (C(UV_*), C(PIP_*), configuration files, C(PYTHONPATH), conda) have no influence.
options:
  root:
    description: Folder of the deployment on the node.
    type: path
    required: true
  id:
    description: Name of the release.
    type: str
    required: true
  wheelhouse:
    description: Folder that M(dgx_spark.vllm.engine_wheelhouse) filled.
    type: path
    required: true
  python:
    description: Path of the interpreter that the environment is made for.
    type: path
    required: true
  expected:
    description:
      - Versions that must come out, by C(vllm), C(torch), C(torch_cuda), C(ray), C(nccl). An empty one is not checked.
    type: dict
    default: {}
  imports:
    description: Modules that must be importable.
    type: list
    elements: str
    default: []
  programs:
    description: Programs that the engine calls while it runs, and that must be in the units' PATH.
    type: list
    elements: str
    default: []
  environment:
    description: Further variables of the units, for the checks.
    type: dict
    default: {}
  wait_s:
    description: How long to wait for another build of the same release (seconds).
    type: int
    default: 1800
  timeout_s:
    description: How long the installation may take (seconds). For as long a build goes on that nobody watches.
    type: int
    default: 7200
  wait:
    description: Come back when the release is built. The action plugin of the same name sets it to false and watches.
    type: bool
    default: true
extends_documentation_fragment: [ansible.builtin.action_common_attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: Build a release
  dgx_spark.vllm.engine_build:
    root: "{{ deployment.root }}"
    id: 0f6a2c11d9e84b75
    wheelhouse: "{{ deployment.root }}/wheelhouse/0f6a2c11d9e84b75"
    python: /usr/bin/python3.12
    expected: {vllm: "0.25.1", torch_cuda: "13.0"}
"""

RETURN = r"""
release:
  description: What is in the release - versions as the programs say them, the sum of its files, seconds each step took.
  returned: success
  type: dict
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_build import BuildError, build
from ansible_collections.dgx_spark.vllm.plugins.module_utils._manifest import NAME
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job, JobError, run_here, start
from ansible_collections.dgx_spark.vllm.plugins.module_utils._release import BusyError, releases


def run(args: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Build it, begin to, or say whether there is anything to build."""
    root, name = Path(args["root"]), args["id"]
    there = (releases(root) / name / NAME).exists()
    if check_mode:
        return {"changed": not there}

    def work(job: Job) -> dict[str, Any]:
        try:
            release = build(
                root,
                name,
                Path(args["wheelhouse"]),
                args["python"],
                args["expected"],
                args["imports"],
                args["programs"],
                {key: str(value) for key, value in args["environment"].items()},
                args["wait_s"],
                args["timeout_s"],
                job.meter,
            )
        except (BuildError, BusyError, OSError) as exc:
            raise JobError(str(exc)) from exc
        return {"changed": release.pop("built"), "release": release}

    title = f"building release {name}"
    if args["wait"] or there:
        return run_here(title, work)
    spec = {key: value for key, value in args.items() if key != "wait"}
    job = start(root / "state" / "jobs", f"build-{name}", title, work, spec, args["timeout_s"])
    return {"changed": False, "job": job}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "id": {"type": "str", "required": True},
            "wheelhouse": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "expected": {"type": "dict", "default": {}},
            "imports": {"type": "list", "elements": "str", "default": []},
            "programs": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
            "wait_s": {"type": "int", "default": 1800},
            "timeout_s": {"type": "int", "default": 7200},
            "wait": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module.params, module.check_mode))
    except (JobError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
