#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a set of small files to its declared state; the thinking is in module_utils/_file_set.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: file_set
short_description: Write a set of small files as a whole
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Brings folders and small text files to their declared content, mode and owner in one task.
  - All new contents are written beside their places and checked before the first is renamed into place.
options:
  files:
    description: Files whose content may be shown in diffs.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Where the file lies.
        type: path
        required: true
      content:
        description: The whole content. Instead of it C(src) names a file of the controller.
        type: str
      src:
        description: A file of the controller; it is read there and sent as O(files[].content).
        type: str
      mode:
        description: Permissions as an octal number in quotes.
        type: str
        default: "0644"
      uid:
        description: Number of the owner, where it is not O(uid).
        type: int
      gid:
        description: Number of the group, where it is not O(gid).
        type: int
      state:
        description: Whether the file is there.
        type: str
        choices: [present, absent]
        default: present
      verify:
        description: The file is a systemd unit that systemd itself must accept before it is written.
        type: bool
        default: false
  secrets:
    description: Files whose content never appears in results, diffs or logs.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Where the file lies.
        type: path
        required: true
      content:
        description: The whole content, one line without its line break, so that Ansible finds and blanks it everywhere.
        type: str
        required: true
      mode:
        description: Permissions as an octal number in quotes.
        type: str
        default: "0600"
      uid:
        description: Number of the owner, where it is not O(uid).
        type: int
      gid:
        description: Number of the group, where it is not O(gid).
        type: int
  dirs:
    description: Folders, made before the files.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Where the folder lies.
        type: path
        required: true
      mode:
        description: Permissions as an octal number in quotes.
        type: str
        default: "0755"
      uid:
        description: Number of the owner, where it is not O(uid).
        type: int
      gid:
        description: Number of the group, where it is not O(gid).
        type: int
  src_dirs:
    description: Files of the controller that are sent by pattern, each to the same name under a folder of the node.
    type: list
    elements: dict
    default: []
    suboptions:
      src:
        description: Folder on the controller.
        type: str
        required: true
      pattern:
        description: Glob pattern of the file names.
        type: str
        required: true
      dest:
        description: Folder on the node.
        type: path
        required: true
  purge:
    description: Files that match a pattern and are not declared are removed.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Folder in which is looked.
        type: path
        required: true
      pattern:
        description: Glob pattern of the file names.
        type: str
        required: true
  uid:
    description: Number of the user that owns everything; by default the user that runs the task.
    type: int
  gid:
    description: Number of the group that owns everything; by default that of the user that runs the task.
    type: int
  scope:
    description: Which systemd is asked about the units.
    type: str
    choices: [user, system]
    default: user
extends_documentation_fragment: [ansible.builtin.action_common_attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: Write the configuration
  dgx_spark.vllm.file_set:
    dirs:
      - path: /home/spark/.config/example
        mode: "0700"
    files:
      - path: /home/spark/.config/example/config.json
        content: "{}"
    secrets:
      - path: /home/spark/.config/example/token
        content: "{{ example_token }}"
"""

RETURN = r"""
changed_paths:
  description: Every path that was or would be changed, with the reasons.
  returned: success
  type: dict
  sample:
    /home/spark/.config/example/config.json: [content]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._file_set import (
    FileSetError,
    Wanted,
    apply,
    diff,
    parse,
    plan,
    strays,
)
from ansible_collections.dgx_spark.vllm.plugins.module_utils._unit_verify import complaints


def _options(**extra: dict[str, object]) -> dict[str, object]:
    """A list of dicts with these options."""
    return {"type": "list", "elements": "dict", "default": [], "options": extra}


def main() -> None:
    """Run the module."""
    path: dict[str, object] = {"type": "path", "required": True}
    text: dict[str, object] = {"type": "str", "required": True}
    owner: dict[str, dict[str, object]] = {"uid": {"type": "int"}, "gid": {"type": "int"}}
    module = AnsibleModule(
        argument_spec={
            "files": _options(
                path=path,
                content={"type": "str"},
                src={"type": "str"},
                mode={"type": "str", "default": "0644"},
                state={"type": "str", "choices": ["present", "absent"], "default": "present"},
                verify={"type": "bool", "default": False},
                **owner,
            ),
            "secrets": {
                **_options(
                    path=path, content={**text, "no_log": True}, mode={"type": "str", "default": "0600"}, **owner
                ),
                # Their contents are kept out of everything; that a file was written is no secret.
                "no_log": False,
            },
            "dirs": _options(path=path, mode={"type": "str", "default": "0755"}, **owner),
            "src_dirs": _options(src=text, pattern=text, dest=path),
            "purge": _options(path=path, pattern=text),
            "uid": {"type": "int"},
            "gid": {"type": "int"},
            "scope": {"type": "str", "choices": ["user", "system"], "default": "user"},
        },
        supports_check_mode=True,
        # The journal of a node is no place for whole files; what is written stands in the diff.
        no_log=True,
    )
    args = module.params
    uid = os.getuid() if args["uid"] is None else args["uid"]
    gid = os.getgid() if args["gid"] is None else args["gid"]

    def verify(units: list[Wanted]) -> None:
        if found := complaints({unit.path.name: unit.content for unit in units}, args["scope"]):
            raise FileSetError("systemd does not accept the units: " + "; ".join(found))

    if any("\n" in secret["content"] for secret in args["secrets"]):
        module.fail_json(msg="a secret is one line without its line break, or Ansible would write it into the journal")
    try:
        wanted = parse(args["files"], args["secrets"], args["dirs"], (uid, gid))
        changes = plan([*wanted, *strays(args["purge"], wanted)])
        if changes and not module.check_mode:
            apply(changes, verify)
    except (FileSetError, OSError) as err:
        module.fail_json(msg=str(err))
    module.exit_json(
        changed=bool(changes),
        changed_paths={str(change.wanted.path): change.reasons for change in changes},
        diff=diff(changes),
    )


if __name__ == "__main__":
    main()
