#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mirror models over the fabric; the thinking is in module_utils/_mirror_*.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_mirror
short_description: Mirror models from node to node over the fabric
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - In three phases that the role C(models) runs in their order on the nodes that its plan names. C(serve) offers models
    by rsync daemons on fabric addresses, read only, to the peers alone, with a password that lives for one run; C(pull)
    brings what lacks in several streams over all rails and proves it against the head's manifest; C(finish) ends the
    offers and puts in place what was proved.
  - No cipher is used unless O(shell) is given, because the cable is the cluster's own and encryption is what costs most
    on it.
  - What was cut goes on where it was; a file that is not what it should be is brought again, alone.
options:
  root:
    description: Folder of the models, the same kind of folder on every node.
    type: path
    required: true
  phase:
    description: What to do.
    type: str
    choices: [serve, pull, finish]
    required: true
  models:
    description: Folders of the models that are offered. For O(phase=serve).
    type: list
    elements: str
    default: []
  manifests:
    description: What each model must be, by its folder. For O(phase=pull) and O(phase=finish).
    type: dict
    default: {}
  sources:
    description: From whom to take, the head last. For O(phase=pull).
    type: list
    elements: dict
    default: []
    suboptions:
      host:
        description: Name of the node, for messages.
        type: str
        required: true
      addresses:
        description: Its addresses, one a rail.
        type: list
        elements: str
        required: true
      chained:
        description: Whether it is receiving itself.
        type: bool
        default: false
  addresses:
    description: Addresses to bind to. For O(phase=serve).
    type: list
    elements: str
    default: []
  peers:
    description: Addresses that may take. For O(phase=serve).
    type: list
    elements: str
    default: []
  port:
    description: TCP port of the offers.
    type: int
    default: 8730
  secret:
    description: The password of this run.
    type: str
  shell:
    description:
      - A command for a remote shell, as C(ssh -F FILE), instead of the daemons. Its key opens O(root) on the sources.
        With it O(phase=serve) starts nothing.
    type: str
    default: ""
  streams:
    description: Streams at once; 0 for half the cores, at least two and at most eight.
    type: int
    default: 0
  reserve:
    description: Bytes that stay free on the disk.
    type: int
    default: 0
  patience:
    description: Seconds without a byte after which to give up.
    type: int
    default: 120
  bandwidth:
    description: Bytes per second that this node takes at most; 0 for no limit.
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
- name: Offer the model on the head
  dgx_spark.vllm.model_mirror:
    root: /home/spark/models
    phase: serve
    models: [Laguna-S-2.1-FP8]
    addresses: [192.168.100.1, 192.168.101.1]
    peers: [192.168.100.2, 192.168.101.2]
    secret: "{{ secret }}"
  register: offer
"""

RETURN = r"""
manifests:
  description: The manifests of the models that are offered.
  returned: O(phase=serve)
  type: dict
moved:
  description: Bytes that came over the fabric.
  returned: O(phase=pull)
  type: int
mended:
  description: Files that were here and wrong, or came wrong, and were brought again.
  returned: O(phase=pull)
  type: list
  elements: str
seconds:
  description: How long it took.
  returned: O(phase=pull)
  type: float
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_pull import Order, Source, pull
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_serve import Offer, serve, wait_until_served
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_work import commit
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import (
    Store,
    jobs_folder,
    load_manifest,
    sound,
)
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import (
    JobError,
    end,
    poll,
    run_here,
    start,
)


def offer_models(args: dict[str, Any]) -> dict[str, Any]:
    """Start the daemons and come back when they answer."""
    root, folder = args["root"], jobs_folder(args["root"])
    offer = Offer(
        root, args["models"], args["addresses"], args["port"], args["peers"], args["secret"], folder / "offer"
    )
    if not args["shell"]:
        start(folder, "serve", "offering models", lambda job: serve(offer, job), args)
        wait_until_served(offer, lambda: poll(folder, "serve"))
    found = {name: load_manifest(Store(root, name).manifest) for name in args["models"]}
    return {"changed": False, "manifests": {name: manifest for name, manifest in found.items() if manifest}}


def bring_models(args: dict[str, Any]) -> dict[str, Any]:
    """Begin the pull, or do it here."""
    folder = jobs_folder(args["root"])
    folder.mkdir(parents=True, exist_ok=True)
    for name, manifest in args["manifests"].items():
        if not sound(manifest):
            raise JobError(f"{name}: not a manifest: {json.dumps(manifest)[:200]}")
    order = Order(
        root=args["root"],
        manifests=args["manifests"],
        sources=[Source(s["host"], s["addresses"], args["port"], s["chained"]) for s in args["sources"]],
        secret=args["secret"],
        folder=folder,
        streams=args["streams"],
        reserve=args["reserve"],
        patience_s=float(args["patience"]),
        bandwidth=args["bandwidth"],
        shell=args["shell"],
    )
    title = f"mirroring {', '.join(args['manifests'])}"
    if args["wait"]:
        return {"changed": True, **run_here(title, lambda job: pull(order, job))}
    return {"changed": False, "job": start(folder, "pull", title, lambda job: pull(order, job), args)}


def finish(args: dict[str, Any]) -> dict[str, Any]:
    """End the offers; put in place what was proved."""
    end(jobs_folder(args["root"]), "serve")
    changed = [name for name, manifest in args["manifests"].items() if commit(Store(args["root"], name), manifest)]
    return {"changed": bool(changed), "placed": changed}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "phase": {"type": "str", "choices": ["serve", "pull", "finish"], "required": True},
            "models": {"type": "list", "elements": "str", "default": []},
            "manifests": {"type": "dict", "default": {}},
            "sources": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "host": {"type": "str", "required": True},
                    "addresses": {"type": "list", "elements": "str", "required": True},
                    "chained": {"type": "bool", "default": False},
                },
            },
            "addresses": {"type": "list", "elements": "str", "default": []},
            "peers": {"type": "list", "elements": "str", "default": []},
            "port": {"type": "int", "default": 8730},
            "secret": {"type": "str", "no_log": True},
            "shell": {"type": "str", "default": ""},
            "streams": {"type": "int", "default": 0},
            "reserve": {"type": "int", "default": 0},
            "patience": {"type": "int", "default": 120},
            "bandwidth": {"type": "int", "default": 0},
            "wait": {"type": "bool", "default": True},
        },
        required_if=[
            ("phase", "serve", ("models", "addresses", "peers", "secret")),
            ("phase", "pull", ("manifests", "sources", "secret")),
        ],
        supports_check_mode=True,
    )
    args = module.params
    if module.check_mode:
        module.exit_json(changed=args["phase"] == "pull")
    work = {"serve": offer_models, "pull": bring_models, "finish": finish}[args["phase"]]
    try:
        module.exit_json(**work(args))
    except (JobError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
