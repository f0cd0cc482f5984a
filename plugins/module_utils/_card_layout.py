# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""How many nodes a card takes, and how the model is divided over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._card_error import Problem

SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size")


@dataclass(frozen=True, slots=True)
class Layout:
    """A division of the model."""

    nodes: int
    sizes: dict[str, int]
    devices: int
    executor: str

    @property
    def tensor(self) -> int:
        return self.sizes.get("tensor_parallel_size", 1)

    @property
    def pipeline(self) -> int:
        return self.sizes.get("pipeline_parallel_size", 1)

    @property
    def data(self) -> int:
        return self.sizes.get("data_parallel_size", 1)

    @property
    def context(self) -> int:
        return self.sizes.get("decode_context_parallel_size", 1)


def _devices(sizes: dict[str, int]) -> int:
    return (
        sizes.get("tensor_parallel_size", 1)
        * sizes.get("pipeline_parallel_size", 1)
        * sizes.get("data_parallel_size", 1)
    )


def layouts(get: Callable[[str], Any], problems: list[Problem]) -> dict[int, Layout]:
    """Every division a card allows, by number of nodes; faults go to `problems`."""

    def bad(table: str, key: str, given: Any, words: str) -> None:
        problems.append(Problem(table, key, given, words))

    base = {key: get(f"parallel.{key}") for key in SIZES if get(f"parallel.{key}") is not None}
    per_node = get("ray.num_gpus")
    found: dict[int, Layout] = {}
    backend = get("parallel.distributed_executor_backend")

    def add(sizes: dict[str, int], table: str, named: int | None) -> None:
        devices = _devices(sizes)
        nodes = -(-devices // per_node)
        if named is not None and nodes != named:
            bad(table, "", f"{devices} devices", f"sizes whose product needs {named} nodes of {per_node} device(s)")
            return
        tensor, context = sizes.get("tensor_parallel_size", 1), sizes.get("decode_context_parallel_size", 1)
        if tensor % context:
            bad(table, "decode_context_parallel_size", context, f"a divisor of tensor_parallel_size {tensor}")
        _heads(get, bad, table, tensor)
        found[nodes] = Layout(nodes, sizes, devices, backend or ("ray" if nodes > 1 else "mp"))

    add(base, "parallel", None)
    for name, sizes in (get("layouts") or {}).items():
        add({**base, **sizes}, f"layouts.{name}", int(name))
    low, high = get("nodes.min"), get("nodes.max")
    if low is not None and high is not None and low > high:
        bad("nodes", "min", low, f"at most nodes.max, which is {high}")
    for nodes in found:
        if (low is not None and nodes < low) or (high is not None and nodes > high):
            place, key = ("min", low) if low is not None and nodes < low else ("max", high)
            bad("nodes", place, key, f"a bound that admits the {nodes} node(s) the division needs")
    if get("supports_tensor") is False and any(layout.devices > 1 for layout in found.values()):
        bad("", "supports_tensor", False, "true for a card that divides the model: false means one node only")
    if not get("supports_tensor") and (high or 1) > 1:
        bad("nodes", "max", high, "1: supports_tensor is false")
    return found


def _heads(get: Callable[[str], Any], bad: Callable[[str, str, Any, str], None], table: str, tensor: int) -> None:
    heads, kv_heads = get("architecture.num_attention_heads"), get("num_key_value_heads")
    if heads and heads % tensor:
        bad(table, "tensor_parallel_size", tensor, f"a divisor of the {heads} attention heads")
    if kv_heads and kv_heads % tensor and tensor % kv_heads:
        bad(table, "tensor_parallel_size", tensor, f"a divisor or a multiple of the {kv_heads} KV heads")


def choose(found: dict[int, Layout], get: Callable[[str], Any], nodes: int | None) -> Layout | str:
    """The division for a number of nodes at hand, or why there is none."""
    base = -(-_devices({key: get(f"parallel.{key}") or 1 for key in SIZES}) // get("ray.num_gpus"))
    if nodes is None:
        return found[base] if base in found else next(iter(found.values()))
    fitting = [count for count in found if count <= nodes]
    if not fitting:
        return f"{min(found)} node(s) at least"
    return found[max(fitting)]
