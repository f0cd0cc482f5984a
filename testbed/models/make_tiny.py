#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the bed's tiny Laguna and its DFlash drafts: no training, no torch, the same bytes on every run.

    make_tiny.py [OUT]      prints the folder that holds the models; made only where it is not there yet

The target answers "assistant:" with "Paris". The drafts: right in all six positions, right in three only, never right
(both for the acceptance check), and the right one in BF16, which the draft builder starts from.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from testbed.models import chain, formats, tokenizer  # noqa: E402

TARGET = "Laguna-Chain-Tiny"
# Folder of a draft: (positions that are right, quantized)
DRAFTS = {
    f"{TARGET}-DFlash-W4A16": (chain.DEPTH, True),
    f"{TARGET}-DFlash-W4A16-K3": (3, True),
    f"{TARGET}-DFlash-W4A16-K0": (0, True),
    f"{TARGET}-DFlash-BF16": (chain.DEPTH, False),
}
TARGET_DRAFT = f"{TARGET}-DFlash-W4A16"
CONTEXT = 4096
GROUP = 128
QUANTIZED = (".self_attn.o_proj.weight", ".mlp.gate_proj.weight", ".mlp.up_proj.weight", ".mlp.down_proj.weight")
IGNORE = ["lm_head", r"re:.*\.self_attn\.qkv_proj$", r"re:.*\.self_attn\.g_proj$"]


def build_cycle() -> chain.Cycle:
    """``: P a r i s </s>`` first, then printable ASCII, then the other bytes: what a person sees is readable."""
    alphabet = tokenizer.byte_alphabet()
    ids = tokenizer.special_ids()
    answer = [alphabet.index(c) for c in ":Paris"]
    others = [i for i in range(256) if i not in answer]
    others.sort(key=lambda i: (not 33 <= ord(alphabet[i]) <= 126, i))
    return chain.make_cycle([*answer, ids["</s>"], *others, ids["<s>"], ids["<pad>"]], ids[tokenizer.MASK])


def _common_config() -> dict[str, Any]:
    ids = tokenizer.special_ids()
    return {
        "model_type": "laguna",
        "torch_dtype": "bfloat16",
        "vocab_size": chain.VOCAB,
        "hidden_size": chain.HIDDEN,
        "intermediate_size": chain.INTERMEDIATE,
        "num_attention_heads": chain.HEADS,
        "num_key_value_heads": chain.KV_HEADS,
        "head_dim": chain.HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "qkv_bias": False,
        "attention_bias": False,
        "gating": "per-head",
        "sliding_window": 64,
        "bos_token_id": ids["<s>"],
        "eos_token_id": ids["</s>"],
        "pad_token_id": ids["<pad>"],
    }


def target_config() -> dict[str, Any]:
    full = {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5}
    sliding = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
    return {
        "architectures": ["LagunaForCausalLM"],
        **_common_config(),
        "num_hidden_layers": chain.LAYERS,
        "layer_types": ["full_attention"] + ["sliding_attention"] * (chain.LAYERS - 1),
        "rope_parameters": {"full_attention": full, "sliding_attention": sliding},
        # Every layer is dense; the expert fields are there because the architecture's config asks for them.
        "mlp_only_layers": list(range(chain.LAYERS)),
        "decoder_sparse_step": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
        "norm_topk_prob": True,
        "moe_routed_scaling_factor": 2.5,
        "moe_apply_router_weight_on_input": False,
    }


def draft_config(quantized: bool) -> dict[str, Any]:
    config = {
        "architectures": ["DFlashLagunaForCausalLM"],
        **_common_config(),
        "num_hidden_layers": chain.DRAFT_LAYERS,
        "layer_types": ["full_attention"] * chain.DRAFT_LAYERS,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": chain.DRAFT_ROPE_THETA,
            "partial_rotary_factor": 1.0,
        },
        "mlp_only_layers": list(range(chain.DRAFT_LAYERS)),
        "num_experts": 0,
        "num_experts_per_tok": 0,
        "moe_intermediate_size": 0,
        "shared_expert_intermediate_size": 0,
        "draft_vocab_size": chain.VOCAB,
        "dflash_config": {
            "block_size": chain.DEPTH + 1,
            "mask_token_id": tokenizer.special_ids()[tokenizer.MASK],
            "target_layer_ids": list(chain.TARGET_LAYER_IDS),
        },
    }
    if quantized:
        weights = {
            "num_bits": 4,
            "type": "int",
            "symmetric": True,
            "strategy": "group",
            "group_size": GROUP,
            "dynamic": False,
            "actorder": None,
            "block_structure": None,
            "observer": "minmax",
            "observer_kwargs": {},
        }
        group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
        config["quantization_config"] = {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "kv_cache_scheme": None,
            "global_compression_ratio": None,
            "ignore": IGNORE,
            "config_groups": {"group_0": group},
        }
    return config


def quantize(weights: dict[str, chain.Array]) -> dict[str, formats.Tensor]:
    """W4A16 as the reference draft is: output and MLP projections and fc in int4, the rest in BF16."""
    tensors: dict[str, formats.Tensor] = {}
    for name, weight in weights.items():
        if name == "fc.weight" or name.endswith(QUANTIZED):
            packed, scale, shape = formats.pack_int4(formats.round_bf16(weight), GROUP)
            base = name.removesuffix(".weight")
            tensors |= {f"{base}.weight_packed": packed, f"{base}.weight_scale": scale, f"{base}.weight_shape": shape}
        else:
            tensors[name] = formats.bf16(weight)
    return tensors


def _shards(weights: dict[str, chain.Array]) -> list[dict[str, formats.Tensor]]:
    """One shard for the embedding, one a layer, one for the end."""
    shards: dict[str, dict[str, formats.Tensor]] = {}
    for name, weight in weights.items():
        part = ".".join(name.split(".")[:3]) if ".layers." in name else name if "embed" in name else "end"
        shards.setdefault(part, {})[name] = formats.bf16(weight)
    return list(shards.values())


def write_models(out: Path) -> None:
    cycle = build_cycle()
    ids = tokenizer.special_ids()
    for name in (TARGET, *DRAFTS):
        folder = out / name
        folder.mkdir(parents=True)
        tokenizer.write_tokenizer(folder, CONTEXT)
        if name == TARGET:
            formats.write_json(folder / "config.json", target_config())
            formats.write_json(
                folder / "generation_config.json",
                {"bos_token_id": ids["<s>"], "eos_token_id": ids["</s>"], "pad_token_id": ids["<pad>"]},
            )
            formats.write_shards(folder, _shards(chain.target_weights(cycle)))
            continue
        right, quantized = DRAFTS[name]
        formats.write_json(folder / "config.json", draft_config(quantized))
        weights = chain.draft_weights(cycle, right)
        tensors = quantize(weights) if quantized else {key: formats.bf16(value) for key, value in weights.items()}
        formats.write_safetensors(folder / "model.safetensors", tensors)


def default_folder() -> Path:
    """Named by the sources' hash: a change of the scripts makes new models, nothing else does."""
    sources = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(HERE.glob("*.py")))).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "dgx-spark-vllm" / "models" / sources[:16]


def make(out: Path) -> Path:
    """Make the models in ``out`` unless they are there; built beside it and renamed, so that it is whole or absent."""
    if out.is_dir():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    # A play asks once for each host at the same time: the first one makes the models, the others wait for it.
    with (out.parent / f".{out.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if out.is_dir():
            return out
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            write_models(aside)
            aside.chmod(0o755)
            aside.rename(out)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, help="folder to make (default: below the user's cache)")
    print(make(parser.parse_args().out or default_folder()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
