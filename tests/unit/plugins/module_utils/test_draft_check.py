# SPDX-License-Identifier: GPL-3.0-or-later
"""C80, C82: a draft that vLLM would refuse, or serve in vain, is refused from its own files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._draft_check import check_draft, wanted_tensors
from ansible_collections.dgx_spark.vllm.plugins.module_utils._draft_quant import as_expression, ignored
from ansible_collections.dgx_spark.vllm.plugins.module_utils._safetensors import Header, Tensor, read_header
from hypothesis import given
from hypothesis import strategies as st

from testbed.models import make_tiny

Config = dict[str, Any]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny.make(tmp_path_factory.mktemp("drafts") / "models")


def config_of(folder: Path) -> Config:
    found: Config = json.loads((folder / "config.json").read_text())
    return found


def faults(
    config: Config, target: Config | None = None, header: Header | None = None, depth: int = 6, **more: Any
) -> list[str]:
    headers = {"model.safetensors": header} if header else {}
    wanted = make_tiny.target_config() if target is None else target
    found = check_draft(config, headers, wanted, depth, **more)
    return [f"{f['found']} | {f['expected']} | {f['cure']}" for f in found]


@pytest.mark.parametrize("name", list(make_tiny.DRAFTS))
def test_the_bed_s_drafts_are_without_fault(models: Path, name: str) -> None:
    assert faults(config_of(models / name), header=read_header(models / name / "model.safetensors")) == []


def _ignore(*entries: str) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        config["quantization_config"]["ignore"] = list(entries)

    return change


def _set(**values: Any) -> Callable[[Config], None]:
    return lambda config: config.update(values)


def _dflash(**values: Any) -> Callable[[Config], None]:
    return lambda config: config["dflash_config"].update(values)


QKV, GATE = r"re:.*\.self_attn\.qkv_proj$", r"re:.*\.self_attn\.g_proj$"
CASES: list[tuple[Callable[[Config], None], list[str]]] = [
    (_set(architectures=["LagunaForCausalLM"]), ["a DFlash architecture"]),
    (_set(architectures=[]), ["architecture none"]),
    (_set(draft_vocab_size=None), ["no draft_vocab_size"]),
    (_set(draft_vocab_size=321), ["320, the target's vocab_size"]),
    (_set(hidden_size=64), ["hidden_size 64"]),
    (_set(layer_types=None), ["layer_types None"]),
    (_set(layer_types=["full_attention"]), ["length 1"]),
    (_set(layer_types=["full_attention", "sliding_attention"]), ["one flavour"]),
    (_set(num_hidden_layers=None), ["num_hidden_layers None"]),
    (_set(dflash_config=None), ["no dflash_config"]),
    (_dflash(target_layer_ids=[]), ["target_layer_ids []"]),
    (_dflash(target_layer_ids="1,2"), ["target_layer_ids 1,2"]),
    (_dflash(target_layer_ids=[1, 4]), ["layers 0 to 3"]),
    (_dflash(mask_token_id=None), ["mask_token_id None"]),
    (_dflash(mask_token_id=320), ["below 320"]),
    (_dflash(block_size=6), ["block_size 6 with a depth of 6", "depth of at most 5"]),
    # C82: a literal name is compared with the module's whole name, and misses it.
    (_ignore("lm_head", "layers.0.self_attn.g_proj", "layers.1.self_attn.g_proj", QKV), ["literal name", GATE]),
    (_ignore("lm_head", "g_proj", QKV), ["literal name 'g_proj'"]),
    (_ignore("lm_head", GATE), ["qkv_proj to be quantized", QKV]),
    (_ignore(), ["qkv_proj to be quantized", "g_proj to be quantized"]),
    (_ignore("re:self_attn", QKV), ["g_proj to be quantized"]),
    (_ignore(QKV, GATE, "re:("), ["regular expression"]),
]


@pytest.mark.parametrize(("change", "said"), CASES)
def test_each_fault_of_the_config_is_named(models: Path, change: Callable[[Config], None], said: list[str]) -> None:
    config = config_of(models / make_tiny.TARGET_DRAFT)
    change(config)
    text = "\n".join(faults(config))
    for part in said:
        assert part in text


def test_whole_names_and_nested_expressions_are_right(models: Path) -> None:
    config = config_of(models / make_tiny.TARGET_DRAFT)
    whole = [f"model.layers.{i}.self_attn.{part}" for i in range(2) for part in ("qkv_proj", "g_proj")]
    for good in (whole, ["re:.*self_attn\\.(qkv|g)_proj"], [QKV, GATE, "Embedding", "lm_head"]):
        _ignore(*good)(config)
        assert faults(config) == []


def _header(config: Config, packed: set[str]) -> Header:
    names = []
    for name in wanted_tensors(config):
        base = name.removesuffix(".weight")
        names += [f"{name}_packed", f"{name}_scale"] if any(base.endswith(p) for p in packed) else [name]
    shape = (config["hidden_size"], config["hidden_size"] * len(config["dflash_config"]["target_layer_ids"]))
    tensors = {name: Tensor("BF16", shape if name == "fc.weight" else (1,), 0, 0) for name in names}
    return Header(tensors, {}, 8, 8)


def test_header_and_config_must_agree(models: Path) -> None:
    config = config_of(models / make_tiny.TARGET_DRAFT)
    right = {"o_proj", "gate_proj", "up_proj", "down_proj", "fc"}
    assert faults(config, header=_header(config, right)) == []
    assert "qkv_proj is quantized" in faults(config, header=_header(config, right | {"qkv_proj"}))[0]
    assert any("packed and in ignore" in f for f in faults(config, header=_header(config, right | {"g_proj"})))
    assert any("down_proj is not packed" in f for f in faults(config, header=_header(config, right - {"down_proj"})))
    del config["quantization_config"]
    assert any("no quantization_config" in f for f in faults(config, header=_header(config, right)))


def test_missing_and_misshapen_weights_are_named(models: Path) -> None:
    config = config_of(models / f"{make_tiny.TARGET}-DFlash-BF16")
    header = _header(config, set())
    del header.tensors["layers.1.self_attn.k_norm.weight"], header.tensors["aux_hidden_norms.1.weight"]
    assert "without aux_hidden_norms.1.weight and 1 more" in faults(config, header=header)[0]
    header = _header(config, set())
    header.tensors["fc.weight"] = Tensor("BF16", (128, 128), 0, 0)
    assert "fc.weight of shape [128, 128]" in faults(config, header=header)[0]


def test_a_draft_for_another_precision_is_refused(models: Path) -> None:
    """C80, from the files: by where the draft comes from, and what the target's config says."""
    config, target = config_of(models / make_tiny.TARGET_DRAFT), make_tiny.target_config()
    fp8 = target | {"quantization_config": {"quant_method": "fp8"}}
    origin = {"source_repo": "poolside/Laguna-S-2.1-DFlash-NVFP4"}
    assert "trained for a target in NVFP4 | FP8" in faults(config, fp8, provenance=origin)[0]
    assert faults(config, fp8, provenance={"source_repo": "poolside/Laguna-S-2.1-DFlash-FP8"}) == []
    assert faults(config, fp8, provenance=origin, trained_for="FP8") == []
    assert "BF16, which the target is in" in faults(config, target, provenance=origin)[0]
    assert faults(config, {}, provenance=origin) == []


def test_other_dflash_drafts_are_held_to_the_common_rules_only() -> None:
    config: Config = {
        "architectures": ["DFlashDraftModel"],
        "vocab_size": 320,
        "hidden_size": 128,
        "num_hidden_layers": 5,
        "block_size": 16,
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 2]},
    }
    assert faults(config, depth=15) == []
    assert "block_size 16 with a depth of 16" in faults(config, depth=16)[0]
    multimodal = {"text_config": {"vocab_size": 300, "hidden_size": 128, "num_hidden_layers": 4}}
    assert "300, the target's" in faults(config, multimodal)[0]


@given(st.integers(0, 40), st.sampled_from(["self_attn.g_proj", "self_attn.qkv_proj", "mlp.up_proj"]))
def test_the_suggested_expression_means_the_module_in_every_layer(layer: int, part: str) -> None:
    entry = as_expression(f"layers.3.{part}")
    assert ignored(f"layers.{layer}.{part}", [entry])
    assert not ignored(f"layers.{layer}.{part}_x", [entry])
    assert ignored("fc", [as_expression("fc")])


@given(
    st.fixed_dictionaries(
        {},
        optional={
            key: st.none() | st.integers(-1, 3) | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
            for key in ("architectures", "layer_types", "num_hidden_layers", "dflash_config", "quantization_config")
        },
    )
)
def test_no_config_makes_a_traceback(change: Config) -> None:
    config = make_tiny.draft_config(True) | change
    assert isinstance(faults(config), list)
