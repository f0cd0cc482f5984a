#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patch an installed source file; the thinking is in module_utils/_source_patch.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: source_patch
short_description: Patch an installed source file by its content
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Decides by the content of the file whether a patch is to be applied, is there already, or is not needed. Content
    that the patch does not know is an error, and the file is untouched.
  - Writes in one step and keeps owner and mode, checks the syntax before and the patch's own check after writing, and
    puts the original bytes back where that check fails. Bytecode of the former content is removed.
options:
  patch:
    description: Name of a bundled patch, or path of a patch file on the controller.
    type: str
    required: true
  path:
    description: The file to patch. Either this, or O(release) with O(package) and O(file).
    type: path
  release:
    description:
      - Folder of the environment that holds the package. The original and a record of what was decided are kept in its
        C(patches) folder.
    type: path
  package:
    description: Import name of the package. The patch's own says it where this is not given.
    type: str
  file:
    description: Path of the file inside the package. The patch's own says it where this is not given.
    type: str
  state:
    description: Whether the file is to have the patch, or the original content.
    type: str
    choices: [present, absent]
    default: present
  python:
    description: Interpreter for the patch's check. By default that of O(release), else the one that runs the module.
    type: path
  patch_dirs:
    description: Further folders on the controller in which patches are looked for by name.
    type: list
    elements: path
    default: []
  patch_content:
    description: The patch itself. Set by the action plugin; not for playbooks.
    type: str
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
- name: Let a quantized draft load
  dgx_spark.vllm.source_patch:
    patch: laguna_dflash_get_cache_scale
    release: "{{ engine_release.path }}"

- name: Take it back
  dgx_spark.vllm.source_patch:
    patch: laguna_dflash_get_cache_scale
    path: /opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/laguna_dflash.py
    state: absent
"""

RETURN = r"""
verdict:
  description:
    - C(applied), C(present) or C(not_needed). With O(state=absent) C(restored) or C(absent).
  returned: success
  type: str
  sample: applied
before_sha256:
  description: Sum of the file before.
  returned: success
  type: str
after_sha256:
  description: Sum of the file afterwards, or what it would be in check mode.
  returned: success
  type: str
path:
  description: The file.
  returned: success
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._source_patch import PatchError, parse, sha256
from ansible_collections.dgx_spark.vllm.plugins.module_utils._source_patch_apply import apply, diff, locate

BUNDLED = Path(__file__).resolve().parents[2] / "roles" / "patches" / "files"


def content_of(patch: str, given: str | None) -> tuple[str, bytes]:
    """Name and content of a patch: as the action plugin handed it over, else from a file on this machine."""
    name = Path(patch).name.removesuffix(".toml")
    if given is not None:
        return name, given.encode()
    path = Path(patch) if "/" in patch or patch.endswith(".toml") else BUNDLED / f"{patch}.toml"
    try:
        return name, path.read_bytes()
    except OSError as exc:
        raise PatchError(f"patch {name}: {exc}") from exc


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "patch": {"type": "str", "required": True},
            "path": {"type": "path"},
            "release": {"type": "path"},
            "package": {"type": "str"},
            "file": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "python": {"type": "path"},
            "patch_dirs": {"type": "list", "elements": "path", "default": []},
            "patch_content": {"type": "str"},
        },
        required_one_of=[("path", "release")],
        supports_check_mode=True,
    )
    args = module.params
    release = Path(args["release"]) if args["release"] else None
    try:
        patch = parse(*content_of(args["patch"], args["patch_content"]))
        if args["path"]:
            path = Path(args["path"])
        else:
            path = locate(Path(args["release"]), args["package"] or patch.package, args["file"] or patch.file)
        python = args["python"] or (f"{release}/bin/python" if release else None)
        keep = release / "patches" if release else None
        outcome = apply(patch, path, args["state"], keep, [python] if python else [], module.check_mode)
    except (PatchError, OSError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(
        changed=outcome.changed,
        verdict=outcome.verdict,
        before_sha256=sha256(outcome.before),
        after_sha256=sha256(outcome.after),
        path=str(path),
        diff=diff(path, outcome),
    )


if __name__ == "__main__":
    main()
