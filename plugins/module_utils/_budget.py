# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Memory of a node under a card: one table, each line with its formula.

An estimate is a range where something is not known, and says what. Nothing here is fitted to a measurement; after a
start the engine's own figures take the place of the estimate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from . import _budget_kv, _budget_model
from ._budget_table import GIB, Budget, count_words, gib, shown, table
from ._card_error import Problem
from ._card_layout import Layout
from ._card_rules import Card, batch_budget

# MemTotal of a DGX Spark, where no node was asked.
SPARK_BYTES = 121 * GIB
DEFAULT_UTILIZATION = 0.92
NEEDED = "needed on the fullest node"


def node_need(card: Card, layout: Layout) -> Budget:
    """Lines of the memory that the fullest node needs, without the KV pool's contents."""
    result = Budget()
    size = card.get("storage_size.in_bytes")
    parts = layout.tensor * layout.pipeline
    # Ranks of one node: more than one where a node has several devices.
    ranks = max(1, layout.devices // layout.nodes)
    result.row("weights of a rank", size // parts, size // parts,
               f"{size} bytes / ({layout.tensor} tensor x {layout.pipeline} pipeline)")  # fmt: skip
    draft = card.get("speculative.draft_bytes") if card.get("runtime.vllm_spec_draft_repo") else 0
    if draft is None:
        result.row("draft", None, None, "speculative.draft_bytes is not given")
    elif draft:
        result.row(
            "draft", draft // layout.tensor, draft, f"{draft} bytes, divided over {layout.tensor} rank(s) or whole"
        )
    pool, words = kv_pool(card)
    if pool:
        result.row("KV pool of a rank", pool, pool, words)
    activation, reserve = card.get("memory.activation"), card.get("memory.reserve")
    result.row("activations, kernels, buffers", 0, activation, "memory.activation, allowed at most")
    if layout.executor == "ray":
        result.row(
            "object store of Ray", 0, card.get("ray.object_store_memory"), "ray.object_store_memory, used on demand"
        )
    if layout.executor == "ray":
        cap = card.get("memory.driver")
        result.row("vllm serve on the head", 0, cap or 0, "memory.driver, its cap" if cap else "no cap in the card")
    result.row("reserve for the system", reserve, reserve, "memory.reserve")
    low = sum(int(row["low"] or 0) * _times(row, ranks) for row in result.rows)
    high = sum(int(row["high"] or 0) * _times(row, ranks) for row in result.rows)
    result.row(NEEDED, low, high, "sum of the lines above" + (f", {ranks} ranks" if ranks > 1 else ""))
    result.needed = high
    return result


def _times(row: Mapping[str, Any], ranks: int) -> int:
    return ranks if row["name"] in ("weights of a rank", "draft", "KV pool of a rank",
                                    "activations, kernels, buffers") else 1  # fmt: skip


def kv_pool(card: Card) -> tuple[int | None, str]:
    """Bytes of a rank's KV pool where the card fixes them."""
    given = card.get("serve.kv_cache_memory_bytes")
    if given:
        return given, "serve.kv_cache_memory_bytes"
    space = card.get("environment.all").get("VLLM_CPU_KVCACHE_SPACE", "")
    if re.fullmatch(r"\d{1,5}", space) and int(space):
        return int(space) * GIB, "VLLM_CPU_KVCACHE_SPACE"
    return None, ""


def judge(need: Budget, memory: int) -> bool | None:
    """Whether a node's memory is enough: yes, no, or between the bounds."""
    low, high = need.rows[-1]["low"], need.rows[-1]["high"]
    return True if high <= memory else None if low <= memory else False


def _verdict(
    card: Card, layout: Layout, found: Mapping[int, Layout], memory: int
) -> tuple[str, dict[int, bool | None]]:
    """In words: on how many nodes it fits. Divisions the card does not name are tried with tensor parallelism."""
    answers: dict[int, bool | None] = {}
    most = max([*found, 2 if card.get("supports_tensor") else 1])
    for nodes in range(1, most + 1):
        sizes = {"tensor_parallel_size": nodes * card.get("ray.num_gpus")}
        executor = layout.executor if nodes > 1 else "mp"
        trial = found.get(nodes) or replace(layout, nodes=nodes, sizes=sizes, devices=sizes["tensor_parallel_size"],
                                            executor=executor)  # fmt: skip
        answers[nodes] = judge(node_need(card, trial), memory)
    parts: list[str] = []
    for nodes, answer in answers.items():
        word = {True: "fits on", False: "does not fit on", None: "may fit on"}[answer]
        parts.append(f"{word} {count_words(nodes)}")
        if answer is True and nodes >= layout.nodes:
            break
    # "fits on one node, fits on two nodes" says no more than its first half.
    if answers.get(1) is True:
        parts = parts[:1]
    return ", ".join(parts), answers


def budget(card: Card, layout: Layout, found: Mapping[int, Layout], node_memory: int | None,
           measured: Mapping[str, Any] | None = None) -> Budget:  # fmt: skip
    """The whole table, with faults where a node's memory is known and not enough."""
    memory = node_memory or SPARK_BYTES
    result = node_need(card, layout)
    result.row("memory of a node", memory, memory, "MemTotal of the smallest node" if node_memory else
               "assumed: a DGX Spark", source="node" if node_memory else "assumed")  # fmt: skip
    verdict, result.answers = _verdict(card, layout, found, memory)
    result.fits = result.answers.get(layout.nodes)
    result.verdict = verdict + f" with {gib(memory)} a node"
    _contexts(card, layout, memory, result, measured or {})
    result.notes.append(result.verdict)
    if node_memory:
        _caps(card, layout, node_memory, result)
        if result.fits is False:
            low = result.find(NEEDED)["low"]
            words = f"a card that fits {gib(node_memory)} a node; at least {gib(low)} are needed:\n{table(result.rows)}"
            result.problems.append(Problem("storage_size", "in_bytes", card.get("storage_size.in_bytes"), words))
        elif result.fits is None:
            words = shown(result.find(NEEDED))
            result.warnings.append(f"memory is tight: {words} of {gib(node_memory)} a node")
    return result


def _caps(card: Card, layout: Layout, memory: int, result: Budget) -> None:
    """Caps of all units of a node and the reserve have to fit the node."""
    reserve = card.get("memory.reserve")
    driver = (card.get("memory.driver") or 0) if layout.executor == "ray" else 0
    for role in ("head", "worker") if layout.nodes > 1 else ("head",):
        cap = card.get(f"memory.{role}")
        if cap is None:
            continue
        parts = [cap, driver, reserve] if role == "head" else [cap, reserve]
        if sum(parts) > memory:
            sums = " + ".join(gib(part) for part in parts)
            words = f"caps that fit {gib(memory)}: {sums} = {gib(sum(parts))} (" + (
                "head, driver, reserve)" if role == "head" else "worker, reserve)"
            )
            result.problems.append(Problem("memory", role, cap, words))


def _pool_by_utilization(card: Card, layout: Layout, memory: int, result: Budget) -> tuple[int, int] | None:
    """Bounds of the pool that vLLM takes itself, out of the share of the memory it may use."""
    if layout.devices > layout.nodes:
        return None
    share = card.get("serve.gpu_memory_utilization") or DEFAULT_UTILIZATION
    rows = {row["name"]: row for row in result.rows}
    high = int(share * memory) - rows["weights of a rank"]["low"] - int((rows.get("draft") or {}).get("low") or 0)
    low = high - card.get("memory.activation")
    words = f"{share} x {memory} - weights - draft, with and without the activation allowance"
    result.row("KV pool of a rank", max(low, 0), max(high, 0), words)
    return max(low, 0), max(high, 0)


def _block(card: Card) -> int:
    default = _budget_kv.VARIANT_BLOCK.get(card.get("engine.variant"), _budget_kv.DEFAULT_BLOCK)
    return int(card.get("serve.block_size") or default)


def _contexts(card: Card, layout: Layout, memory: int, result: Budget, measured: Mapping[str, Any]) -> None:
    """Tokens and full contexts of the KV pool."""
    length = card.get("serve.max_model_len") or card.get("context_length") or 0
    fixed, _words = kv_pool(card)
    pools = (fixed, fixed) if fixed else _pool_by_utilization(card, layout, memory, result)
    stack = _budget_model.stack(card, layout)
    if not (stack and pools and length):
        missing = (
            "the model's attention layers" if not stack else "the KV pool" if not pools else "the context's length"
        )
        result.row("tokens in the KV pool", None, None, f"{missing}: not known from the card alone", unit="tokens")
        _measured(card, result, measured, length)
        return
    batched = batch_budget(card.get("runtime.vllm_spec_num_tokens"), card.get("serve.max_num_seqs"),
                           card.get("serve.max_num_batched_tokens")) or _budget_kv.DEFAULT_BATCHED  # fmt: skip
    found: list[_budget_kv.Capacity] = []
    for pool in sorted(set(pools)):
        serving = _budget_kv.Serving(pool, length, batched, _block(card),
                                     layout.context, card.get("runtime.vllm_spec_num_tokens") or 0)  # fmt: skip
        for case in _budget_model.cases(card, layout, stack):
            held = _budget_kv.capacity(case, serving)
            if held:
                found.append(held)
                result.notes.append(
                    f"KV, {held.words}: {pool} / ({held.page} x {held.group}) = {held.blocks} blocks, "
                    f"{held.per_request} for a context ({held.groups}): {held.contexts:.2f} contexts, "
                    f"{held.tokens:,} tokens"
                )
    if not found:
        return
    low, high = min(found, key=lambda c: c.tokens), max(found, key=lambda c: c.tokens)
    bytes_low, bytes_high = min(c.token_bytes for c in found), max(c.token_bytes for c in found)
    heads = (
        f"2 x {max(1, stack.kv_heads // layout.tensor)} heads x {stack.head_dim}" if not stack.latent else stack.latent
    )
    result.row("KV of a token and rank", bytes_low, bytes_high,
               f"layers that keep the whole context x {heads} x bytes of an element", "bytes per token",
               stack.source)  # fmt: skip
    # The size of a state decides how blocks are cut; where only config.json knows it, there is no lower bound.
    floor = None if stack.counts.get("state") and not stack.states else low
    words = "vLLM's groups of layers; see the notes" + ("" if floor else "; without the states' own size")
    result.row("tokens in the KV pool", floor.tokens if floor else None, high.tokens, words, "tokens", stack.source)
    result.row(
        "full contexts",
        floor.contexts if floor else None,
        high.contexts,
        f"tokens / {length}",
        "contexts",
        stack.source,
    )
    if not _measured(card, result, measured, length, found):
        _enough(card, low, high, length, result)


def _enough(card: Card, low: _budget_kv.Capacity, high: _budget_kv.Capacity, length: int, result: Budget) -> None:
    """vLLM starts only where the pool holds one full context."""
    if high.contexts < 1:
        words = (f"a pool for one context of {length} tokens: {high.per_request} blocks x {high.group} layers x "
                 f"{high.page} bytes = {high.per_request * high.group * high.page} bytes")  # fmt: skip
        given = card.get("serve.kv_cache_memory_bytes")
        path = "kv_cache_memory_bytes" if given else "max_model_len"
        result.problems.append(Problem("serve", path, given or length, words))
    elif low.contexts < 1 and not _agreeing([high], card.get("expect.kv_tokens")):
        result.warnings.append(
            f"the KV pool may hold less than one context of {length} tokens: {low.contexts:.2f} with {low.words}; vLLM "
            "refuses to start then"
        )


def _agreeing(found: list[_budget_kv.Capacity], tokens: float | None) -> list[str]:
    """Readings whose estimate is what was measured, to a thousandth."""
    return [case.words for case in found if tokens and abs(case.tokens - tokens) <= max(16, tokens // 1000)]


def _measured(card: Card, result: Budget, measured: Mapping[str, Any], length: int,
              found: list[_budget_kv.Capacity] | None = None) -> bool:  # fmt: skip
    """Put the engine's own figure in the estimate's place, and say how the two relate."""
    tokens = measured.get("kv_tokens")
    source = "the engine's log"
    if not isinstance(tokens, (int, float)) or isinstance(tokens, bool) or tokens <= 0:
        tokens, source = card.get("expect.kv_tokens"), "measured, by the card"
    if not tokens:
        return False
    agreeing = _agreeing(found or [], tokens)
    if found:
        reading = f"the estimate under: {agreeing[0]}" if agreeing else "none of the estimates above"
        result.notes.append(f"KV, {source}: {int(tokens):,} tokens, {tokens / length:.2f} contexts; that is {reading}")
    if source != "the engine's log":
        return False
    for row in result.rows:
        if row["name"] == "tokens in the KV pool":
            row.update(value=int(tokens), low=int(tokens), high=int(tokens), formula=source, source="measured")
        elif row["name"] == "full contexts":
            ratio = tokens / length
            row.update(value=ratio, low=ratio, high=ratio, source="measured")
    return True
