# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The one table of a model card's fields.

Validation, the argument list, the documentation page, the JSON Schema for editors and the documentation of the
`card_info` module are all made from `FIELDS`; nothing about a field is written a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

# The vLLM release whose parser the choices below were read from.
KNOWN_VLLM = "0.25.1"

# Kinds of values. `size` is a whole number of bytes or text such as "98G"; `table` is a table that is handed on as
# JSON; `env` is a table of environment variables; `layouts` is a table keyed by a number of nodes.
KINDS = ("bool", "int", "float", "str", "strs", "size", "table", "env", "layouts")


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a card."""

    path: str
    kind: str
    text: str
    default: Any = None
    required: bool = False
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    # Values that later releases of vLLM have beside `choices`.
    later: tuple[str, ...] = ()
    # A regular expression for the whole value, with the words that explain it.
    pattern: str = ""
    shape: str = ""
    # The flag of `vllm serve` that carries the value, and the one for false where false differs from absence.
    flag: str = ""
    negative: str = ""
    # "public" for a field of the public card format, "card" for ours.
    origin: str = "card"

    @property
    def table(self) -> str:
        """The table the key stands in, "" for the top level."""
        return self.path.rpartition(".")[0]

    @property
    def key(self) -> str:
        return self.path.rpartition(".")[2]


# Tables of a card, in the order of the documentation.
TABLES: dict[str, str] = {
    "": "What the model is, and what stands above all tables.",
    "storage_size": "Size of what is staged.",
    "reasoning": "How the model reasons.",
    "tooling": "How the model calls tools.",
    "placement": "Where the model can run.",
    "license": "The model's licence.",
    "runtime": "Parsers and speculation, as the public format names them.",
    "engine": "The engine the card was written for.",
    "nodes": "How many nodes the model takes.",
    "parallel": "How the model is divided, and who starts the ranks.",
    "layouts": "Other divisions, keyed by the number of nodes.",
    "serve": "Flags of `vllm serve`, named as there.",
    "speculative": "The draft beyond what [runtime] says of it.",
    "environment": "Environment variables of the engine's processes.",
    "ray": "Ray's own arguments.",
    "memory": "Memory caps and allowances.",
    "architecture": "Facts of config.json that the memory budget needs before the model is staged.",
    "expect": "What the deployment must show.",
}

# Parts of the public format that other engines use: accepted, ignored, named in a note.
IGNORED_TABLES = ("vision", "audio", "music", "video", "image", "embedding", "modalities", "components")
IGNORED_KEYS = (
    "gguf_file", "uses_cfg", "is_custom", "artifact_file", "artifact_repository", "source_files", "advisories",
    "capability_claims", "engine_support", "registry_card_id", "registry_snapshot_id", "registry_provenance",
    "registry_architecture",
)  # fmt: skip
IGNORED_RUNTIME = (
    "prompt_renderer", "output_parser", "metal_fast_synch", "speculative_multi_node", "assistant_model_repo",
    "assistant_model_revision", "vllm_extra_args", "llama_server_extra_args",
)  # fmt: skip
IGNORED_RUNTIME_PREFIXES = ("mtp_", "served_", "mlx_", "metal_", "llama_", "assistant_", "gguf_")


@cache
def fields() -> dict[str, Field]:
    """All fields by path, in the order of the documentation."""
    from ._card_fields import CARD_FIELDS
    from ._card_fields_public import PUBLIC_FIELDS
    from ._card_fields_serve import SERVE_FIELDS

    everything = [*PUBLIC_FIELDS, *CARD_FIELDS, *SERVE_FIELDS]
    order = list(TABLES)
    everything.sort(key=lambda field: order.index(field.table.split(".")[0]))
    return {field.path: field for field in everything}


@cache
def tables() -> dict[str, dict[str, Field]]:
    """Table name -> key -> field. A field that is a table of its own stands under its parent."""
    found: dict[str, dict[str, Field]] = {name: {} for name in TABLES if name != "layouts"}
    for field in fields().values():
        found.setdefault(field.table, {})[field.key] = field
    return found


@cache
def serve_flags() -> dict[str, str]:
    """Every flag the table owns -> the path of its field."""
    owned = {field.flag: field.path for field in fields().values() if field.flag}
    owned.update({field.negative: field.path for field in fields().values() if field.negative})
    return owned
