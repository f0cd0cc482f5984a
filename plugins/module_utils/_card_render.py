# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""A checked card as argument lists. Lists, never shell text, in a fixed order: a diff of cards is a diff of flags."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ._card_fields_public import METHODS_OWN_DRAFT
from ._card_layout import Layout
from ._card_rules import Card, batch_budget
from ._card_schema import Field, fields

DEFAULT_MASTER_PORT = 29501


def folder(repository: str) -> str:
    """The folder of a repository under the models root."""
    return repository.rpartition("/")[2]


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def models(card: Card, models_root: str) -> list[dict[str, Any]]:
    """Target and draft: where from, where to."""
    target = card.get("source_repository") or card.get("model_id")
    rows = [("target", target, card.get("source_revision"), folder(card.get("model_id")), "storage_size.in_bytes")]
    draft = card.get("runtime.vllm_spec_draft_repo")
    if draft and card.get("runtime.vllm_spec_method") in METHODS_OWN_DRAFT:
        name = card.get("speculative.draft_folder") or folder(draft)
        rows.append(("draft", draft, card.get("runtime.vllm_spec_draft_revision"), name, "speculative.draft_bytes"))
    return [
        {
            "role": role,
            "repo": repository,
            "revision": revision,
            "name": name,
            "path": f"{models_root.rstrip('/')}/{name}" if models_root else "",
            "bytes": card.get(size),
        }
        for role, repository, revision, name, size in rows
    ]


def speculative(card: Card, models_root: str) -> dict[str, Any] | None:
    """The speculative config; None without a method."""
    method = card.get("runtime.vllm_spec_method")
    if method is None:
        return None
    config: dict[str, Any] = {"method": method}
    depth = card.get("runtime.vllm_spec_num_tokens")
    if depth is not None:
        config["num_speculative_tokens"] = depth
    for model in models(card, models_root):
        if model["role"] == "draft":
            config["model"] = model["path"] or model["repo"]
            if not model["path"] and model["revision"]:
                config["revision"] = model["revision"]
    return {**config, **card.get("speculative.config")}


def served_name(card: Card) -> str:
    return str(card.get("serve.served_model_name") or folder(card.get("model_id")).lower())


def _flag(field: Field, value: Any) -> list[str]:
    if value is None:
        return []
    if field.kind == "bool":
        if value:
            return [field.flag]
        return [field.negative] if field.negative else []
    if field.kind == "table":
        return [field.flag, compact(value)] if value else []
    return [field.flag, value if isinstance(value, str) else compact(value)]


def _parallel(card: Card, layout: Layout) -> list[str]:
    args: list[str] = []
    backend = "parallel.distributed_executor_backend"
    if layout.devices > 1 or card.get(backend):
        args += [fields()[backend].flag, layout.executor]
    for key, size in layout.sizes.items():
        if size > 1:
            args += [fields()[f"parallel.{key}"].flag, str(size)]
    copies = card.get("parallel.data_parallel_backend")
    if copies is None and layout.data > 1 and layout.nodes > 1 and layout.executor == "ray":
        copies = "ray"
    args += _flag(fields()["parallel.data_parallel_backend"], copies)
    args += _flag(fields()["parallel.enable_expert_parallel"], card.get("parallel.enable_expert_parallel"))
    return args


def _parsers(card: Card) -> list[str]:
    args: list[str] = []
    tools = card.get("runtime.vllm_tool_call_parser")
    if tools and card.get("tooling.supports_tool_calling") is not False:
        args += ["--enable-auto-tool-choice", fields()["runtime.vllm_tool_call_parser"].flag, tools]
    return args + _flag(fields()["runtime.vllm_reasoning_parser"], card.get("runtime.vllm_reasoning_parser"))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What an argument list takes from the inventory."""

    models_root: str = ""
    host: str = ""
    port: int | None = None
    master: str = ""


def serve_argv(card: Card, layout: Layout, endpoint: Endpoint, rank: int | None = None) -> list[str]:
    """Arguments after `vllm serve`. With `rank` those of one rank of the mp executor on several nodes."""
    target = models(card, endpoint.models_root)[0]
    args = [target["path"] or target["repo"]]
    if not target["path"] and target["revision"]:
        args += ["--revision", target["revision"]]
    args += [fields()["serve.served_model_name"].flag, served_name(card)]
    args += _flag(fields()["trust_remote_code"], card.get("trust_remote_code"))
    args += _parallel(card, layout)
    for path, field in fields().items():
        if not path.startswith("serve.") or path == "serve.served_model_name":
            continue
        value = card.get(path)
        if path == "serve.max_num_batched_tokens":
            value = batch_budget(card.get("runtime.vllm_spec_num_tokens"), card.get("serve.max_num_seqs"), value)
        args += _flag(field, value)
    args += _parsers(card)
    config = speculative(card, endpoint.models_root)
    if config is not None:
        args += ["--speculative-config", compact(config)]
    if rank is not None:
        args += ["--nnodes", str(layout.nodes), "--node-rank", str(rank), "--master-addr", endpoint.master]
        args += ["--master-port", str(card.get("parallel.master_port") or DEFAULT_MASTER_PORT)]
    if rank:
        args.append("--headless")
    else:
        args += ["--host", endpoint.host] if endpoint.host else []
        args += ["--port", str(endpoint.port)] if endpoint.port else []
    return args + list(card.get("extra_args"))


def ray_argv(card: Card) -> dict[str, list[str]]:
    """The card's part of `ray start`; addresses and ports are the node's."""
    args = [f"--num-gpus={card.get('ray.num_gpus')}", f"--object-store-memory={card.get('ray.object_store_memory')}"]
    return {"head": list(args), "worker": list(args)}
