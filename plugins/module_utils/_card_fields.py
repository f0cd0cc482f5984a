# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Fields that the public card format does not have: nodes, division, memory, facts, expectations."""

from __future__ import annotations

from typing import Any

from ._card_fields_public import REPOSITORY
from ._card_schema import KNOWN_VLLM, Field

PRECISIONS = ("BF16", "FP8", "NVFP4", "INT4")
MAX_NODES = 64


def _parallel(prefix: str) -> list[Field]:
    """The sizes of a division, for [parallel] and for each table of [layouts]."""
    sizes = (
        ("tensor_parallel_size", "Ranks a layer is divided over.", "--tensor-parallel-size"),
        ("pipeline_parallel_size", "Stages the layers are divided into.", "--pipeline-parallel-size"),
        ("data_parallel_size", "Copies of the model.", "--data-parallel-size"),
        ("decode_context_parallel_size", "Ranks a context's KV is divided over.", "--decode-context-parallel-size"),
    )
    return [
        Field(f"{prefix}.{name}", "int", text, low=1, high=MAX_NODES, flag=flag if prefix == "parallel" else "")
        for name, text, flag in sizes
    ]


def _bytes(path: str, text: str, **more: Any) -> Field:
    return Field(path, "size", text, **{"low": 0, "high": 2**53, **more})


LAYOUT_FIELDS: dict[str, Field] = {field.key: field for field in _parallel("layouts")}

CARD_FIELDS: list[Field] = [
    Field(
        "extends",
        "str",
        "Card this one starts from: a bundled card's name, or a path beside this card. Tables are merged by key.",
    ),
    Field("unset", "strs", "Dotted keys of the card in `extends` that this card drops.", default=[]),
    Field(
        "status",
        "str",
        "Whether somebody measured this deployment, reported it, or only wrote it down.",
        default="untested",
        choices=("measured", "reported", "untested"),
    ),
    Field("status_note", "str", "Who measured what, and when.", default=""),
    Field("patches", "strs", "Bundled patches of the engine that this model needs.", default=[]),
    Field(
        "extra_args",
        "strs",
        "Arguments handed to `vllm serve` verbatim, last. A flag that has a field of its own is refused.",
        default=[],
    ),
    Field(
        "engine.vllm",
        "str",
        f"vLLM release. Choices of flags are checked against {KNOWN_VLLM} only.",
        default=KNOWN_VLLM,
        pattern=r"\d+(\.\d+)+([a-z]+\d+)?(\.post\d+)?",
        shape="a release such as 0.25.1",
    ),
    Field(
        "engine.variant",
        "str",
        "Build of the engine; the inventory's engine_variant wins.",
        default="cu130",
        pattern=r"[a-z0-9]+",
        shape="cu130, cu129, cpu or the like",
    ),
    Field(
        "engine.nccl",
        "str",
        "NCCL the engine is installed with. Below 2.30.7 several nodes need enforce_eager.",
        default="2.28.9",
        pattern=r"\d+\.\d+\.\d+",
        shape="a release such as 2.28.9",
    ),
    Field("nodes.min", "int", "Fewest nodes. Default: what the division needs.", low=1, high=MAX_NODES),
    Field("nodes.max", "int", "Most nodes. Default: what the division needs.", low=1, high=MAX_NODES),
    *_parallel("parallel"),
    Field(
        "parallel.enable_expert_parallel",
        "bool",
        "Divide experts by expert instead of dividing each.",
        flag="--enable-expert-parallel",
    ),
    Field(
        "parallel.data_parallel_backend",
        "str",
        "Who starts the copies.",
        choices=("ray", "mp"),
        flag="--data-parallel-backend",
    ),
    Field(
        "parallel.distributed_executor_backend",
        "str",
        "Who starts the ranks: Ray, or one vLLM a node. Default: ray on several nodes.",
        choices=("ray", "mp"),
        flag="--distributed-executor-backend",
    ),
    Field("parallel.master_port", "int", "Port of the ranks' meeting point (mp only).", low=1024, high=65_535),
    Field("layouts", "layouts", "A table for each number of nodes, with the sizes of [parallel] that differ there."),
    Field("speculative.draft_folder", "str", "Folder of the draft under the models root; else the repository's name.",
          pattern=r"(?!\.\.?$)[^/\x00-\x1f]+", shape="a folder's name"),
    _bytes("speculative.draft_bytes", "Bytes of the draft."),
    Field(
        "speculative.trained_for",
        "str",
        "Precision of the target that the draft was trained for. Overrides what names and configs say.",
        choices=PRECISIONS,
    ),
    Field("speculative.config", "table", "Further keys of vLLM's speculative config, verbatim.", default={}),
    Field("environment.all", "env", "Variables of every process of the engine, on every node.", default={}),
    Field("environment.head", "env", "Variables on the head only.", default={}),
    Field("environment.worker", "env", "Variables on workers only.", default={}),
    Field("ray.num_gpus", "int", "Devices a node offers.", default=1, low=1, high=16),
    _bytes("ray.object_store_memory", "Ray's object store on each node.", default=2_000_000_000, low=78_643_200),
    _bytes("memory.head", "Cap of the head's ranks (MemoryMax); under mp `vllm serve` is one of them."),
    _bytes("memory.worker", "Cap of a worker's ranks (MemoryMax)."),
    _bytes("memory.driver", "Cap of `vllm serve` itself on the head under Ray (MemoryMax)."),
    _bytes("memory.reserve", "Left to the system on every node.", default=6 * 2**30),
    _bytes("memory.activation", "Allowed for activations, kernels and buffers of a rank.", default=6 * 2**30),
    Field("architecture.num_attention_heads", "int", "Query heads.", low=1, high=100_000),
    Field("architecture.head_dim", "int", "Size of a head.", low=1, high=100_000),
    Field("architecture.full_attention_layers", "int", "Layers that attend to the whole context.", low=0, high=10_000),
    Field("architecture.sliding_attention_layers", "int", "Layers that attend to a window.", low=0, high=10_000),
    Field("architecture.sliding_window", "int", "Tokens of the window.", low=1, high=1_000_000_000),
    Field("architecture.linear_attention_layers", "int", "Layers with a state instead of KV.", low=0, high=10_000),
    Field("architecture.kv_bytes", "float", "Bytes of a KV element, where the checkpoint fixes it.", low=0.1, high=8),
    Field("architecture.kv_latent_dim", "int", "Elements a token and layer keeps under MLA, instead of heads.",
          low=1, high=100_000),
    Field("architecture.draft_layers", "int", "Attention layers of the draft.", low=0, high=1_000),
    Field("expect.prompt", "str", "Prompt of the smoke check.",
          default="What is the capital of France? Answer in one word."),
    Field("expect.answer", "str", "Text that the answer has to contain.", default="Paris"),
    Field("expect.max_tokens", "int", "Tokens the smoke check allows.", default=512, low=1, high=1_000_000),
    Field("expect.acceptance", "float", "Share of drafted tokens that was accepted when measured.", low=0, high=1),
    Field("expect.acceptance_min", "float", "Share below which the check fails.", low=0, high=1),
    Field("expect.decode_tps", "float", "Tokens a second of one stream when measured.", low=0, high=1e6),
    Field("expect.decode_tps_min", "float", "Tokens a second below which the check fails.", low=0, high=1e6),
    Field("expect.kv_tokens", "int", "Tokens the KV pool held when measured.", low=1, high=2**53),
    _bytes("expect.memory_head", "Memory in use on the head when serving."),
    _bytes("expect.memory_worker", "Memory in use on a worker when serving."),
    Field("expect.ready_s", "int", "Seconds until ready, at most.", default=1800, low=1, high=86_400),
    Field("expect.lossless", "bool", "Whether greedy output with and without the draft is compared.", default=True),
]  # fmt: skip

__all__ = ["CARD_FIELDS", "LAYOUT_FIELDS", "PRECISIONS", "REPOSITORY"]
