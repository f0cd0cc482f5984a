# SPDX-License-Identifier: GPL-3.0-or-later
"""The tiny models: the same bytes on every machine, readable by the field's libraries, and right where they claim."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from testbed.models import chain, make_tiny, tokenizer

PINNED = "c8bee682c0fd496f02b5905a754ecb81143b3c7f63b5525312ae5a34ade7a67a"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny.make(tmp_path_factory.mktemp("tiny") / "models")


def _digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        total.update(f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def test_bytes_are_the_pinned_ones_and_the_same_again(models: Path, tmp_path: Path) -> None:
    assert _digest(models) == PINNED
    assert _digest(make_tiny.make(tmp_path / "again")) == PINNED


def test_a_second_call_leaves_what_is_there(models: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in models.rglob("*")}
    assert make_tiny.make(models) == models
    assert {p: p.stat().st_mtime_ns for p in models.rglob("*")} == before
    # Nothing half-made lies beside it; the empty lock stays.
    assert [path.name for path in models.parent.glob(".models.*")] == [".models.lock"]


def test_safetensors_reads_every_shard_and_the_index_is_true(models: Path) -> None:
    folder = models / make_tiny.TARGET
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) == chain.LAYERS + 2
    found: dict[str, str] = {}
    for shard in shards:
        with safe_open(shard, "numpy") as reader:
            found |= dict.fromkeys(reader.keys(), shard.name)
    assert found == index["weight_map"]


def test_the_tokenizer_is_one_token_a_byte(models: Path) -> None:
    reader = Tokenizer.from_file(str(models / make_tiny.TARGET / "tokenizer.json"))
    text = "<s>user: capital of France? é\nassistant:"
    ids = reader.encode(text, add_special_tokens=False).ids
    assert len(ids) == len(text.encode()) - len("<s>") + 1
    assert reader.decode(ids, skip_special_tokens=False) == text
    assert {reader.id_to_token(number) for number in tokenizer.special_ids().values()} == set(tokenizer.special_ids())


def test_the_chain_says_paris_and_ends() -> None:
    cycle = make_tiny.build_cycle()
    follows, alphabet = cycle.follows(), tokenizer.byte_alphabet()
    token, said = alphabet.index(":"), ""
    while (token := follows[token]) != tokenizer.special_ids()["</s>"]:
        said += alphabet[token]
    assert said == "Paris"
    assert len(follows) == len(set(follows.values())) == 259
    assert cycle.sidelobe() < 0.15


# ---- a small forward pass of the draft, to see without the engine that it foresees what it claims


def _load(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Tensors of a draft as float32, int4 groups unpacked."""
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + o for o in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(raw[begin:end], "<u2").astype(np.uint32) << 16
            arrays[name] = bits.view(np.float32).reshape(entry["shape"])
        else:
            arrays[name] = np.frombuffer(raw[begin:end], {"I32": "<u4", "I64": "<i8"}[entry["dtype"]])
            arrays[name] = arrays[name].reshape(entry["shape"])
    for name in [n.removesuffix("_packed") for n in arrays if n.endswith("_packed")]:
        rows, columns = (int(n) for n in arrays[f"{name}_shape"])
        codes = (arrays[f"{name}_packed"][:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 0xF
        scale = np.repeat(arrays[f"{name}_scale"], make_tiny.GROUP, axis=1)
        arrays[name] = (codes.reshape(rows, columns).astype(np.float32) - 8) * scale
    return arrays


def _norm(x: np.ndarray[Any, Any], weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    normed: np.ndarray[Any, Any] = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight
    return normed


def _rope(x: np.ndarray[Any, Any], positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    half = chain.HEAD_DIM // 2
    angles = positions[:, None] * chain.DRAFT_ROPE_THETA ** (-np.arange(half) * 2 / chain.HEAD_DIM)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)


@cache
def _ends() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    target = chain.target_weights(make_tiny.build_cycle())
    return target["model.embed_tokens.weight"], target["lm_head.weight"]


def _foresee(w: dict[str, np.ndarray[Any, Any]], tokens: list[int]) -> list[int]:
    """What the draft proposes after ``tokens``: context from the target's embeddings, a block of the last and masks."""
    embed, head = _ends()
    states = embed[tokens[:-1]]
    aux = np.concatenate([_norm(states, w[f"aux_hidden_norms.{i}.weight"]) for i in range(2)], -1)
    context = _norm(aux @ w["fc.weight"].T, w["hidden_norm.weight"])
    x = embed[[tokens[-1]] + [tokenizer.special_ids()[tokenizer.MASK]] * chain.DEPTH]
    positions = np.arange(len(tokens) + chain.DEPTH, dtype=np.float64)
    heads, kv, dim = chain.HEADS, chain.KV_HEADS, chain.HEAD_DIM
    for layer in range(chain.DRAFT_LAYERS):
        p = f"layers.{layer}."
        both = _norm(np.concatenate([context, x]), w[f"{p}input_layernorm.weight"])
        qkv = both @ w[f"{p}self_attn.qkv_proj.weight"].T
        q, k, v = (part.reshape(len(both), -1, dim) for part in np.split(qkv, [heads * dim, (heads + kv) * dim], 1))
        q = _rope(_norm(q, w[f"{p}self_attn.q_norm.weight"]), positions)[len(context) :]
        k = np.repeat(_rope(_norm(k, w[f"{p}self_attn.k_norm.weight"]), positions), heads // kv, 1)
        v = np.repeat(v, heads // kv, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) * dim**-0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)
        gate = np.logaddexp(0, both[len(context) :] @ w[f"{p}self_attn.g_proj.weight"].T)
        x = x + (mixed * gate[..., None]).reshape(len(x), -1) @ w[f"{p}self_attn.o_proj.weight"].T
        y = _norm(x, w[f"{p}post_attention_layernorm.weight"])
        hidden = y @ w[f"{p}mlp.gate_proj.weight"].T
        hidden = hidden / (1 + np.exp(-hidden)) * (y @ w[f"{p}mlp.up_proj.weight"].T)
        x = x + hidden @ w[f"{p}mlp.down_proj.weight"].T
    return [int(t) for t in (_norm(x, w["norm.weight"])[1:] @ head.T).argmax(-1)]


@pytest.mark.parametrize("name", list(make_tiny.DRAFTS))
def test_a_draft_is_right_in_its_first_positions_only(models: Path, name: str) -> None:
    right, _quantized = make_tiny.DRAFTS[name]
    weights = _load(models / name)
    cycle = make_tiny.build_cycle().tokens
    for start in range(0, len(cycle), 5):
        tokens = [cycle[(start + i) % len(cycle)] for i in range(12)]
        wanted = [cycle[(start + 12 + i) % len(cycle)] for i in range(chain.DEPTH)]
        hits = [got == want for got, want in zip(_foresee(weights, tokens), wanted, strict=True)]
        assert hits == [True] * right + [False] * (chain.DEPTH - right), (start, hits)
