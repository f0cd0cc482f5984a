# SPDX-License-Identifier: GPL-3.0-or-later
"""The weights of a Laguna that knows one chain of tokens, and of DFlash drafts that foresee it.

Every token stands on one cycle. Its embedding is a point on 63 circles (cosine and sine of its place at 63
frequencies), and the output head holds the same points moved one place back, so the likeliest next token is the next
one on the cycle, with a margin that the (small, random) layers in between cannot close. ``:`` is followed by
``P a r i s`` and the end, which makes the last prompt character of the chat template the question.

The draft needs no training either: its first layer's head *h* looks by rotary phase alone exactly *h* places back and
turns what it finds *h - 1* places forward along the cycle. The block position *j* places after the last known token
finds that token with head *j*, and so says token *j* of the continuation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

HIDDEN = 128
VOCAB = 320
LAYERS = 4
HEADS = 6
KV_HEADS = 2
HEAD_DIM = 128
INTERMEDIATE = 256
DRAFT_LAYERS = 2
DRAFT_ROPE_THETA = 100.0
TARGET_LAYER_IDS = (1, 2)
# As many positions as the draft has heads: one head is one place of look-ahead.
DEPTH = HEADS

CIRCLES = 63
_POINT = slice(1, 1 + 2 * CIRCLES)
_BIAS = 8.0
_MASK_BIAS = 11.0
# Weight of the draft's query and key norms: how sharply a head looks at one distance.
_SHARPNESS = 3.2
_TURN_GAIN = 3.0
# A draft that errs, errs on purpose (half the cycle away), softly enough not to drown its right positions.
_WRONG_GAIN = 0.1


@dataclass(frozen=True)
class Cycle:
    """The order of the tokens and the frequencies of their circles."""

    tokens: list[int]
    mask: int
    frequencies: list[int] = field(default_factory=list)

    def angles(self, place: float) -> NDArray[np.float64]:
        turn = 2 * math.pi / len(self.tokens)
        return np.array([turn * f * place for f in self.frequencies], dtype=np.float64)

    def point(self, place: float) -> Array:
        angles = self.angles(place)
        return np.concatenate([np.cos(angles), np.sin(angles)]).astype(np.float32)

    def follows(self) -> dict[int, int]:
        """The successor of each token on the cycle."""
        return {token: self.tokens[(i + 1) % len(self.tokens)] for i, token in enumerate(self.tokens)}

    def sidelobe(self) -> float:
        """Largest likeness of two different places (1 is equality): what the margin of the chain rests on."""
        here = self.point(0)
        return max(float(here @ self.point(k)) for k in range(1, len(self.tokens))) / CIRCLES


def make_cycle(tokens: list[int], mask: int, seed: int = 1) -> Cycle:
    """Spread the frequencies by a fixed seed: RandomState's streams are frozen, Generator's are not."""
    chosen = np.random.RandomState(seed).permutation(len(tokens) // 2 - 1)[:CIRCLES] + 1
    return Cycle(tokens, mask, sorted(int(f) for f in chosen))


class _Noise:
    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed)

    def __call__(self, *shape: int, std: float) -> Array:
        return (self._state.standard_normal(shape) * std).astype(np.float32)


def _ones(size: int, value: float = 1.0) -> Array:
    return np.full(size, value, dtype=np.float32)


def _mlp(noise: _Noise, prefix: str) -> dict[str, Array]:
    return {
        f"{prefix}mlp.gate_proj.weight": noise(INTERMEDIATE, HIDDEN, std=0.05),
        f"{prefix}mlp.up_proj.weight": noise(INTERMEDIATE, HIDDEN, std=0.05),
        f"{prefix}mlp.down_proj.weight": noise(HIDDEN, INTERMEDIATE, std=1e-3),
        f"{prefix}input_layernorm.weight": _ones(HIDDEN),
        f"{prefix}post_attention_layernorm.weight": _ones(HIDDEN),
    }


def target_weights(cycle: Cycle) -> dict[str, Array]:
    """A dense Laguna: embedding and head hold the chain, the layers add noise far below the margin."""
    embed = np.zeros((VOCAB, HIDDEN), dtype=np.float32)
    head = np.zeros((VOCAB, HIDDEN), dtype=np.float32)
    embed[:, 0] = _BIAS
    embed[cycle.mask, 0] = _MASK_BIAS
    for place, token in enumerate(cycle.tokens):
        embed[token, _POINT] = cycle.point(place)
        head[cycle.tokens[(place + 1) % len(cycle.tokens)], _POINT] = cycle.point(place)
    noise = _Noise(1)
    weights = {"model.embed_tokens.weight": embed}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        attention = f"{prefix}self_attn."
        weights |= {
            f"{attention}q_proj.weight": noise(HEADS * HEAD_DIM, HIDDEN, std=0.05),
            f"{attention}k_proj.weight": noise(KV_HEADS * HEAD_DIM, HIDDEN, std=0.05),
            f"{attention}v_proj.weight": noise(KV_HEADS * HEAD_DIM, HIDDEN, std=0.05),
            f"{attention}o_proj.weight": noise(HIDDEN, HEADS * HEAD_DIM, std=1e-3),
            f"{attention}g_proj.weight": noise(HEADS, HIDDEN, std=0.05),
            f"{attention}q_norm.weight": _ones(HEAD_DIM),
            f"{attention}k_norm.weight": _ones(HEAD_DIM),
        }
        weights |= _mlp(noise, prefix)
    return weights | {"model.norm.weight": _ones(HIDDEN), "lm_head.weight": head}


def _looking_layer(cycle: Cycle, right: int) -> tuple[Array, Array]:
    """qkv_proj and o_proj of the layer that looks back: heads beyond ``right`` turn to the wrong side."""
    half = HEAD_DIM // 2
    phases = DRAFT_ROPE_THETA ** (-np.arange(half, dtype=np.float64) * 2 / HEAD_DIM)
    qkv = np.zeros(((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN), dtype=np.float32)
    out = np.zeros((HIDDEN, HEADS * HEAD_DIM), dtype=np.float32)
    cos_rows = np.arange(CIRCLES) + _POINT.start
    sin_rows = cos_rows + CIRCLES
    for distance in range(1, HEADS + 1):
        first = (distance - 1) * HEAD_DIM
        qkv[first : first + half, 0] = np.cos(phases * distance)
        qkv[first + half : first + HEAD_DIM, 0] = -np.sin(phases * distance)
        good = distance <= right
        ahead = distance - 1 if good else distance - 1 + len(cycle.tokens) // 2
        gain = _TURN_GAIN if good or right == 0 else _TURN_GAIN * _WRONG_GAIN
        cos, sin = np.cos(cycle.angles(ahead)) * gain, np.sin(cycle.angles(ahead)) * gain
        cos_in, sin_in = first + np.arange(CIRCLES), first + CIRCLES + np.arange(CIRCLES)
        out[cos_rows, cos_in], out[cos_rows, sin_in] = cos, -sin
        out[sin_rows, sin_in], out[sin_rows, cos_in] = cos, sin
    for group in range(KV_HEADS):
        key = (HEADS + group) * HEAD_DIM
        value = (HEADS + KV_HEADS + group) * HEAD_DIM
        qkv[key : key + half, 0] = 1
        qkv[value + np.arange(2 * CIRCLES), _POINT.start + np.arange(2 * CIRCLES)] = 1
    return qkv, out


def draft_weights(cycle: Cycle, right: int = DEPTH) -> dict[str, Array]:
    """A DFlash drafter right in its first ``right`` positions and wrong in the others."""
    noise = _Noise(2)
    eye = np.eye(HIDDEN, dtype=np.float32) / len(TARGET_LAYER_IDS)
    weights = {"fc.weight": np.concatenate([eye] * len(TARGET_LAYER_IDS), axis=1)}
    weights |= {f"aux_hidden_norms.{i}.weight": _ones(HIDDEN) for i in range(len(TARGET_LAYER_IDS))}
    weights |= {"hidden_norm.weight": _ones(HIDDEN), "norm.weight": _ones(HIDDEN)}
    for layer in range(DRAFT_LAYERS):
        prefix = f"layers.{layer}."
        if layer == 0:
            qkv, out = _looking_layer(cycle, right)
        else:
            qkv = noise((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN, std=0.05)
            out = noise(HIDDEN, HEADS * HEAD_DIM, std=1e-3)
        sharpness = _SHARPNESS if layer == 0 else 1.0
        weights |= {
            f"{prefix}self_attn.qkv_proj.weight": qkv,
            f"{prefix}self_attn.o_proj.weight": out,
            f"{prefix}self_attn.g_proj.weight": np.zeros((HEADS, HIDDEN), dtype=np.float32),
            f"{prefix}self_attn.q_norm.weight": _ones(HEAD_DIM, sharpness),
            f"{prefix}self_attn.k_norm.weight": _ones(HEAD_DIM, sharpness),
        }
        weights |= _mlp(noise, prefix)
    return weights
