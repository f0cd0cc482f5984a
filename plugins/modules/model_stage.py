#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Get models onto the head; the thinking is in module_utils/_staging.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_stage
short_description: Get models from a source, whole and proved, with their manifests
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Asks the source what each model consists of, brings what lacks into a folder beside it, proves every file by its
    sum, looks at the whole as the engine would, and only then puts it in place, with a manifest.
  - Goes on where an earlier run was cut. A model that is whole is not touched; one that somebody else put there is
    hashed and gets a manifest.
  - Works in the background and shows how far it is. What was begun goes on for two minutes after a play was killed, and
    is found again by the next.
options:
  root:
    description: Folder of the models.
    type: path
    required: true
  models:
    description:
      - The models that are wanted, as the card names them, each with C(name) (its folder below O(root)), C(repo),
        C(revision) and C(bytes). Other keys are ignored. Smaller models come first.
    type: list
    elements: dict
    required: true
  source:
    description:
      - Where the models come from, by C(type).
      - C(hub) is the model hub (optional C(endpoint), C(ignore), C(workers), C(python)); C(controller) a folder of the
        controller; C(folder) one of the node; C(nfs) one of the node that must lie on a network file system; C(host)
        one of another host, over SSH (C(address), C(path), optional C(user), C(key), C(port)). In each C(path) holds
        the models by name.
      - C(urls) has C(files), for each model a list of C(path), C(url), C(sha256) and optionally C(size).
    type: dict
    default: {type: hub}
  speculative:
    description:
      - The card's speculation (C(method), C(depth), C(trained_for)). With method C(dflash) a draft is checked as soon
        as it is here, before a larger target is fetched.
    type: dict
    default: {}
  hub_python:
    description: A Python that has huggingface_hub, as the engine's environment does.
    type: path
  token_file:
    description: File with the hub's token, mode 0600. It need not exist.
    type: path
  reserve:
    description: Bytes that stay free on the disk.
    type: int
    default: 0
  wait:
    description: Come back when the work is done. The action plugin of the same name sets it to false and watches.
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
- name: Get the models from a folder of the head
  dgx_spark.vllm.model_stage:
    root: /home/spark/models
    models: "{{ deployment.card.models }}"
    source: {type: folder, path: /mnt/models}
"""

RETURN = r"""
moved:
  description: Bytes that came from the source.
  returned: success, not in check mode
  type: int
models:
  description: What was done for each model.
  returned: success, not in check mode
  type: list
  elements: dict
to_move:
  description: Bytes that would come, by the manifest or by the card.
  returned: in check mode
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_state import require_draft, states
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import jobs_folder
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import human
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job, JobError, run_here, start
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging import Wanted, stage
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging_order import check_source, make_source


def run(args: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Do it, begin it, or say what it would be."""
    root, folder = args["root"], jobs_folder(args["root"])
    ordered = sorted(args["models"], key=lambda model: int(model.get("bytes") or 0))
    check_source(args["source"])
    if check_mode:
        to_move = sum(found["to_move"] for found in states(root, ordered, {}))
        names = ", ".join(model["name"] for model in ordered)
        said = f"would bring {human(to_move)} ({to_move} bytes) for {names}" if to_move else f"would prove {names}"
        return {"changed": True, "to_move": to_move, "msg": said}
    folder.mkdir(parents=True, exist_ok=True)
    models = []
    for model in ordered:
        wanted = Wanted(str(model["name"]), str(model.get("repo") or ""), str(model.get("revision") or ""))
        source = make_source(args["source"], wanted, root, folder, args["hub_python"] or "", args["token_file"] or "")
        models.append((wanted, *source))

    def accept(name: str) -> None:
        require_draft(root, args["models"], args["speculative"], name)

    def work(job: Job) -> dict[str, Any]:
        return stage(root, models, args["reserve"], job, accept)

    title = f"staging {', '.join(model['name'] for model in ordered)}"
    if args["wait"]:
        return run_here(title, work)
    spec = {key: value for key, value in args.items() if key != "wait"}
    return {"changed": False, "job": start(folder, "stage", title, work, spec)}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "models": {"type": "list", "elements": "dict", "required": True},
            "source": {"type": "dict", "default": {"type": "hub"}},
            "speculative": {"type": "dict", "default": {}},
            "hub_python": {"type": "path"},
            "token_file": {"type": "path", "no_log": False},
            "reserve": {"type": "int", "default": 0},
            "wait": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module.params, module.check_mode))
    except (JobError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
