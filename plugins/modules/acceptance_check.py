#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a served model by real completions; the thinking is in module_utils/_acceptance.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: acceptance_check
short_description: Prove by real completions that a model serves as its card expects
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Asks the card's smoke prompt, then generates a window of tokens in one stream and compares answer, acceptance of the
    draft and decode rate with the card's expectations.
  - Changes nothing. The API key is read on the node and appears in no argument list.
options:
  base_url:
    description: Address of the API without C(/v1).
    type: str
    required: true
  api_key_file:
    description: File of mode 0600 with a line C(VLLM_API_KEY=...); absent for a server without a key.
    type: path
  model:
    description: Served name of the model.
    type: str
    required: true
  target:
    description: Name of the target, for messages.
    type: str
    required: true
  draft:
    description: Name of the draft, for messages; empty where there is none.
    type: str
    default: ""
  expect:
    description:
      - Expectations of the card. C(prompt) and C(answer) of the smoke test, C(max_tokens), C(acceptance_min) (0 to 1),
        C(decode_tps_min) (tokens a second).
    type: dict
    required: true
  window_prompt:
    description: Prompt of the window in which drafts are counted.
    type: str
    required: true
  window_tokens:
    description: Tokens to generate in the window.
    type: int
    default: 128
  timeout_s:
    description: How long one answer may take, in seconds.
    type: float
    default: 300
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
- name: Prove that the model serves
  dgx_spark.vllm.acceptance_check:
    base_url: http://127.0.0.1:8000
    api_key_file: /home/spark/.config/dgx-spark-vllm/api.env
    model: laguna-s-fp8
    target: Laguna-S-2.1-FP8
    draft: Laguna-S-2.1-DFlash-W4A16
    expect: {prompt: "What is the capital of France? Answer in one word.", answer: Paris, acceptance_min: 0.4}
    window_prompt: "def quicksort(items):"
"""

RETURN = r"""
smoke:
  description: The smoke prompt, its answer, token ids and finish reason.
  returned: success
  type: dict
window:
  description: Tokens, drafted and accepted counts, acceptance (0 to 1), mean length, counts by position, decode rate.
  returned: success
  type: dict
errors:
  description: What does not meet the card's expectations, each with host, subject, found, expected and cure.
  returned: always
  type: list
  elements: dict
warnings_found:
  description: The same for what is only worth knowing.
  returned: always
  type: list
  elements: dict
"""

import platform
import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils._acceptance import Api, ApiError, judge, smoke, window
from ansible_collections.dgx_spark.vllm.plugins.module_utils._report import format_report


def read_key(path: str | None) -> str:
    """The key of a file with a line VLLM_API_KEY=..., or an empty string without a file."""
    if not path:
        return ""
    match = re.search(r"^VLLM_API_KEY=(.*)$", Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    # vLLM takes several keys separated by commas; any of them opens the door.
    return match.group(1).strip().strip("\"'").split(",")[0] if match else ""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "base_url": {"type": "str", "required": True},
            "api_key_file": {"type": "path", "no_log": False},
            "model": {"type": "str", "required": True},
            "target": {"type": "str", "required": True},
            "draft": {"type": "str", "default": ""},
            "expect": {"type": "dict", "required": True},
            "window_prompt": {"type": "str", "required": True},
            "window_tokens": {"type": "int", "default": 128, "no_log": False},
            "timeout_s": {"type": "float", "default": 300},
        },
        supports_check_mode=True,
    )
    args = module.params
    try:
        api = Api(args["base_url"].rstrip("/"), read_key(args["api_key_file"]), args["timeout_s"])
        asked = smoke(api, args["model"], args["expect"])
        spun = window(api, args["model"], args["window_prompt"], args["window_tokens"])
    except (ApiError, OSError) as error:
        module.fail_json(msg=f"{platform.node()}: {args['base_url']}: {error}", errors=[], warnings_found=[])
    errors, warnings = judge(platform.node(), args["target"], args["draft"], args["expect"], asked, spun)
    result: dict[str, Any] = {"smoke": asked, "window": spun, "errors": errors, "warnings_found": warnings}
    if errors:
        module.fail_json(msg=format_report(errors, warnings), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
