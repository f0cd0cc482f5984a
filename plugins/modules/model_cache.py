#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drop the page cache of models; the thinking is in module_utils/_pagecache.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_cache
short_description: Drop the page cache of models, without root
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Gives the cached pages of the models' files back to the system by posix_fadvise. On unified memory they count as
    used.
  - Pages that a running engine has mapped stay.
options:
  paths:
    description: Files and folders. Those that are not there are passed over.
    type: list
    elements: path
    required: true
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
- name: Drop the cache of a model
  dgx_spark.vllm.model_cache:
    paths: [/home/spark/models/Laguna-S-2.1-FP8]
"""

RETURN = r"""
cached_before:
  description: Bytes that were in the cache.
  returned: success
  type: int
cached_after:
  description: Bytes that still are.
  returned: success, not in check mode
  type: int
bytes:
  description: Size of the files.
  returned: success, not in check mode
  type: int
skipped:
  description: Files that may not be read.
  returned: success, not in check mode
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._pagecache import cached_bytes, drop_tree, files_of


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"paths": {"type": "list", "elements": "path", "required": True}}, supports_check_mode=True
    )
    paths = module.params["paths"]
    if module.check_mode:
        cached = sum(cached_bytes(path) for path in files_of(paths))
        module.exit_json(changed=cached > 0, cached_before=cached)
    found = drop_tree(*paths)
    module.exit_json(changed=found["cached_after"] < found["cached_before"], **found)


if __name__ == "__main__":
    main()
