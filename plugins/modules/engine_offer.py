#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Offer wheels to the other nodes; the thinking is in module_utils/_engine_offer.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_offer
short_description: Offer a wheelhouse to the other nodes over the fabric
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Serves the files of one folder, read only, on one address and to the given peers alone, for
    M(dgx_spark.vllm.engine_wheelhouse) on the other nodes to take. The hashes of the lock judge what arrives.
  - The offer ends when it is told to, or by itself when nobody has asked for a while.
options:
  state:
    description: Whether to begin an offer or to end one.
    type: str
    choices: [present, absent]
    default: present
  folder:
    description: The wheelhouse. For O(state=present).
    type: path
  address:
    description: Address of the fabric to listen on. For O(state=present).
    type: str
  port:
    description: TCP port, or 0 for one that is free.
    type: int
    default: 0
  peers:
    description: Addresses that may take. For O(state=present).
    type: list
    elements: str
    default: []
  idle_s:
    description: Seconds without a request after which the offer ends by itself.
    type: int
    default: 300
  url:
    description: The offer to end, as it was returned. For O(state=absent).
    type: str
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
- name: Offer the wheels on the head
  dgx_spark.vllm.engine_offer:
    folder: "{{ deployment.root }}/wheelhouse/0f6a2c11d9e84b75"
    address: 192.168.100.1
    peers: [192.168.100.2]
  register: offer
"""

RETURN = r"""
url:
  description: Where the files are.
  returned: O(state=present)
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_offer import OfferError, start, stop


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "folder": {"type": "path"},
            "address": {"type": "str"},
            "port": {"type": "int", "default": 0},
            "peers": {"type": "list", "elements": "str", "default": []},
            "idle_s": {"type": "int", "default": 300},
            "url": {"type": "str"},
        },
        required_if=[("state", "present", ("folder", "address")), ("state", "absent", ("url",))],
        supports_check_mode=True,
    )
    args = module.params
    if module.check_mode:
        module.exit_json(changed=False, url="")
    if args["state"] == "absent":
        module.exit_json(changed=False, ended=stop(args["url"]))
    try:
        url = start(Path(args["folder"]), args["address"], args["port"], args["peers"], float(args["idle_s"]))
    except OfferError as exc:
        module.fail_json(msg=str(exc))
    # What lasts is on the other nodes; an offer is gone after the run.
    module.exit_json(changed=False, url=url)


if __name__ == "__main__":
    main()
