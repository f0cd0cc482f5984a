#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Token ids that a target gives on one device, without Ray and without a draft; runs under the engine's Python.

usage: tokens.py MODEL < prompts.json      (a list of {"prompt": text, "max_tokens": n, "ignore_eos": bool})
Prints one JSON list of lists of token ids as the last line.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="ERROR")

from vllm import LLM, SamplingParams


def main() -> None:
    """Generate greedily for every prompt on standard input."""
    asked = json.load(sys.stdin)
    model = LLM(sys.argv[1], max_model_len=512, max_num_seqs=2, enforce_eager=True, dtype="bfloat16")
    params = [
        SamplingParams(temperature=0, max_tokens=item["max_tokens"], ignore_eos=item["ignore_eos"]) for item in asked
    ]
    answers = model.generate([item["prompt"] for item in asked], params, use_tqdm=False)
    print(json.dumps([list(answer.outputs[0].token_ids) for answer in answers]))


if __name__ == "__main__":
    main()
