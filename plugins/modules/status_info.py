#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what a node runs and why not; the thinking is in module_utils/_node_status.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: status_info
short_description: Say what a node runs, since when, and why not
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Reads units, history, memory, the last resolution of the fabric and, on the head, the server and Ray.
  - Answers with anything broken; what could not be had is named in the result. Runs as the user of the engine.
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
- name: Look at the node
  dgx_spark.vllm.status_info:
  register: status
"""

RETURN = r"""
status:
  description: What was found.
  returned: success
  type: dict
  sample:
    name: spark-01
    is_head: true
    units: {vllm-serve.service: {state: active, since_s: 3600, enabled: true, stale: false, result: success}}
    reason: ""
    problems: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._node_status import gather


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, status=gather())


if __name__ == "__main__":
    main()
