#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Argument lists for check_argv.py, as JSON: every bundled card, every flag with every choice, and bad ones.

usage: card_lists.py [MODELS_ROOT] > lists.json       (on the controller, from a checkout)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _card, _card_rules, _card_schema  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_error import CardFaultError  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._card_fields_public import METHODS  # noqa: E402

# A value of each flag whose field has no choices; flags that need others beside them.
SAMPLES = {
    "--compilation-config": '{"cudagraph_mode":"NONE"}', "--limit-mm-per-prompt": '{"image":1}',
    "--default-chat-template-kwargs": '{"enable_thinking":false}', "--hf-overrides": '{"x":1}',
    "--override-generation-config": '{"temperature":0.7}', "--served-model-name": "name",
    "--generation-config": "vllm", "--chat-template": "/dev/null", "--tool-call-parser": "hermes",
    "--reasoning-parser": "qwen3",
}  # fmt: skip
BESIDE = {"--tool-call-parser": ["--enable-auto-tool-choice"]}
# Values of speculative keys of the types that vLLM gives them, and keys that those need beside them.
SPECULATIVE: dict[str, object] = {
    "enforce_eager": True, "draft_tensor_parallel_size": 1, "quantization": "fp8", "moe_backend": "triton",
    "attention_backend": "FLASH_ATTN", "max_model_len": 512, "code_revision": "main", "draft_load_config": None,
    "disable_padded_drafter_batch": True, "use_local_argmax_reduction": True, "use_heterogeneous_vocab": True,
    "prompt_lookup_max": 4, "prompt_lookup_min": 2, "parallel_drafting": True,
    "num_speculative_tokens_per_batch_size": [[1, 2, 3]], "suffix_decoding_max_tree_depth": 4,
    "suffix_decoding_max_cached_requests": 4, "suffix_decoding_max_spec_factor": 1.5,
    "suffix_decoding_min_token_prob": 0.2, "rejection_sample_method": "standard",
    "synthetic_acceptance_rates": [0.5, 0.2], "synthetic_acceptance_length": 2.0, "draft_sample_method": "greedy",
}  # fmt: skip
WITH: dict[str, dict[str, object]] = {
    "synthetic_acceptance_rates": {"rejection_sample_method": "synthetic"},
    "synthetic_acceptance_length": {"rejection_sample_method": "synthetic"},
    "use_heterogeneous_vocab": {"method": "draft_model", "model": "d"},
}
SPEC = "--speculative-config"
BAD = {
    "refused: an unknown flag": ["m", "--max-model-length", "5"],
    "refused: a flag that is gone": ["m", "--disable-log-requests"],
    "refused: a later KV type": ["m", "--kv-cache-dtype", "nvfp4_ds_mla"],
    "refused: an unknown type": ["m", "--dtype", "fp16"],
    "refused: a tool choice without a parser": ["m", "--enable-auto-tool-choice"],
    "refused: an unknown speculative key": ["m", SPEC, '{"method":"mtp","disable_eagle_block_drop":true}'],
    "refused: an unknown method": ["m", SPEC, '{"method":"magic","num_speculative_tokens":2}'],
    "refused: a depth of none": ["m", SPEC, '{"method":"mtp","num_speculative_tokens":0}'],
}


def bundled(models_root: str) -> dict[str, list[str]]:
    """Every bundled card on every number of nodes it takes, every rank of mp."""
    found = {}
    for path in sorted((ROOT / "cards").glob("*.toml")):
        for nodes in range(1, 5):
            try:
                card = _card.card_info(path.stem, [ROOT / "cards"], models_root=models_root, nodes=nodes,
                                       host="0.0.0.0", port=8000, master_addr="192.168.100.1")  # fmt: skip
            except CardFaultError:
                continue
            for rank, argv in enumerate(card["rank_argv"] or [card["serve_argv"]]):
                found[f"{path.stem}, {card['nodes']['count']} nodes, rank {rank}"] = argv
    return found


def flags() -> dict[str, list[str]]:
    """Every flag that a field has, with every choice, or both ends of a range."""
    found = {}
    for field in _card_schema.fields().values():
        values: list[str] = list(field.choices) or [SAMPLES[name] for name in SAMPLES if name == field.flag]
        if field.kind == "size":
            values = ["5368709120"]
        elif field.kind in ("int", "float") and field.low is not None:
            values = [str(int(field.low) if field.kind == "int" else field.low)]
        for flag in (field.flag, field.negative):
            if flag and field.kind == "bool":
                found[flag] = ["m", flag]
            elif flag:
                for value in values:
                    found[f"{flag} {value}"] = ["m", *BESIDE.get(flag, []), flag, value]
                if not values:
                    raise ValueError(f"{flag} has no sample value")
    return found


def speculative() -> dict[str, list[str]]:
    """Every method, and every further key that the rules know."""
    found = {}
    for method in METHODS:
        found[f"method {method}"] = [
            "m",
            "--speculative-config",
            json.dumps({"method": method, "num_speculative_tokens": 2}),
        ]
    for key in sorted(_card_rules.SPEC_KEYS):
        config = {"method": "mtp", "num_speculative_tokens": 2, key: SPECULATIVE[key], **WITH.get(key, {})}
        found[f"speculative key {key}"] = ["m", SPEC, json.dumps(config)]
    return found


def main() -> int:
    models_root = sys.argv[1] if len(sys.argv) > 1 else "/nonexistent"
    print(json.dumps({**bundled(models_root), **flags(), **speculative(), **BAD}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
