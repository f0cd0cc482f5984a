#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH between nodes over the fabric; the thinking is in module_utils/_fabric_ssh.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_ssh
short_description: Let nodes read folders of each other by SSH over the fabric
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Makes one key pair for each folder that nodes read of each other, and says the public halves and the host keys of
    this node's sshd. A private key never leaves its node.
  - Given O(peers), it lets them in for that alone (C(restrict), C(from=) and a forced C(rrsync -ro) in
    C(authorized_keys)), and writes C(known_hosts) and a file for C(ssh -F) for each key.
options:
  folder:
    description: Folder of the keys, of C(known_hosts) and of the files NAME.conf for C(ssh -F).
    type: path
    required: true
  roots:
    description: Name of a key to the absolute path of the folder that it opens.
    type: dict
    required: true
  state:
    description: Whether keys and access are there.
    type: str
    choices: [present, absent]
    default: present
  peers:
    description:
      - Name of each other node to its C(addresses) on the fabric, its C(public_keys) and its C(host_keys), as this
        module returned them there. Without it only the keys are made.
    type: dict
  user:
    description: User to log in as on the peers.
    type: str
  port:
    description: Port of the peers' sshd.
    type: int
    default: 22
  authorized_keys:
    description: File in which the peers' keys are let in. Only a marked block of it is ever touched.
    type: path
    default: ~/.ssh/authorized_keys
  host_key_folder:
    description: Where sshd keeps its host keys.
    type: path
    default: /etc/ssh
extends_documentation_fragment: [ansible.builtin.action_common_attributes]
attributes:
  check_mode:
    support: full
    details: Keys that would be made are missing in RV(public_keys).
  diff_mode:
    support: full
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: Make the key with which this node reads models of its peers
  dgx_spark.vllm.fabric_ssh:
    folder: /home/spark/.config/dgx-spark-vllm/fabric_ssh
    roots: {models: /home/spark/models}
  register: keys

- name: Let the other node read them
  dgx_spark.vllm.fabric_ssh:
    folder: /home/spark/.config/dgx-spark-vllm/fabric_ssh
    roots: {models: /home/spark/models}
    user: spark
    peers:
      spark-02:
        addresses: [192.168.100.2]
        public_keys: "{{ hostvars['spark-02'].keys.public_keys }}"
        host_keys: "{{ hostvars['spark-02'].keys.host_keys }}"
"""

RETURN = r"""
public_keys:
  description: Name to public key, for keys that exist.
  returned: success
  type: dict
  sample: {models: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleExampl}
host_keys:
  description: Public host keys of this node's sshd.
  returned: success
  type: list
  elements: str
made:
  description: Names of the keys that were made, or would be in check mode.
  returned: success
  type: list
  elements: str
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_ssh
from ansible_collections.dgx_spark.vllm.plugins.module_utils._file_set import FileSetError, apply, diff, parse, plan

ARGUMENTS = {
    "folder": {"type": "path", "required": True},
    "roots": {"type": "dict", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "peers": {"type": "dict"},
    "user": {"type": "str"},
    "port": {"type": "int", "default": 22},
    # Nothing secret in spite of the names.
    "authorized_keys": {"type": "path", "default": "~/.ssh/authorized_keys", "no_log": False},
    "host_key_folder": {"type": "path", "default": "/etc/ssh", "no_log": False},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, required_by={"peers": ["user"]}, supports_check_mode=True)
    params, folder = module.params, Path(module.params["folder"])
    names, access = sorted(params["roots"]), Path(params["authorized_keys"])
    present = params["state"] == "present"
    try:
        _fabric_ssh.check_names(params["roots"])
        made = _fabric_ssh.missing_keys(folder, names) if present else []
        changes = []
        if params["peers"] is not None or not present:
            now = access.read_text(encoding="utf-8") if access.exists() else ""
            wanted = _fabric_ssh.files({**params, "peers": params["peers"] or {}}, now)
            dirs = [{"path": str(path), "mode": "0700"} for path in (access.parent, folder) if present]
            changes = plan(parse(wanted, [], dirs, (os.getuid(), os.getgid())))
        if not module.check_mode:
            for name in made:
                _fabric_ssh.make_key(folder, name, "dgx-spark-vllm fabric")
            apply(changes, lambda _wanted: None)
        there = [name for name in names if present and (name not in made or not module.check_mode)]
        public = {name: _fabric_ssh.public_part((folder / f"{name}.pub").read_text("utf-8")) for name in there}
        hosts = _fabric_ssh.host_keys(Path(params["host_key_folder"]))
    except (_fabric_ssh.KeyFault, FileSetError, OSError) as error:
        module.fail_json(msg=str(error))
    shown = [] if not module._diff else _without_keys(diff(changes))
    module.exit_json(changed=bool(made or changes), made=made, public_keys=public, host_keys=hosts, diff=shown)


def _without_keys(shown: list[dict[str, str]]) -> list[dict[str, str]]:
    """A private key that is removed is not shown."""
    return [{**one, "before": "(a key)\n"} if "PRIVATE KEY" in one["before"] else one for one in shown]


if __name__ == "__main__":
    main()
