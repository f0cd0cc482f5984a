#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action of the same name; nothing runs on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: card_info
short_description: Read a model card and derive everything from it
version_added: "0.1.0"
author: "dgx_spark.vllm contributors (@dgx-spark)"
description:
  - Reads a model card, with the cards it extends and the keys that the inventory overrides, and checks all of it.
  - Returns the normalised card and what follows from it, such as argument lists, environment and a memory budget.
  - Runs on the controller and changes nothing. A card with faults fails with all of them at once.
attributes:
  check_mode:
    description: Can run in check mode and return the same.
    support: full
  diff_mode:
    description: Changes nothing, so there is no difference to show.
    support: none
  action:
    description: Runs on the controller.
    support: full
options:
  src:
    description:
      - Path of a card, from the folder of the playbook, or the name of a bundled card.
      - A model's id is a name as well; its C(/) is read as C(--).
    type: str
    required: true
  overrides:
    description:
      - Values of single keys by dotted key, such as C(serve.max_model_len). They win over the card.
      - A null drops the key.
    type: dict
  models_root:
    description:
      - Folder of the models on the nodes. Without it, repositories are rendered instead of paths.
      - Where this machine has a C(config.json) there as well, the budget is made from it.
    type: str
    default: ""
  nodes:
    description: Number of nodes at hand. The card's largest division that fits is taken.
    type: int
  node_memory_bytes:
    description: Memory of the smallest node. With it, caps and budget are checked against it.
    type: int
  cards_path:
    description: Folders with further cards, looked in before the bundled ones.
    type: list
    elements: str
    default: []
  host:
    description: Address for C(--host).
    type: str
    default: ""
  port:
    description: Port for C(--port).
    type: int
  master_addr:
    description: Address of the head for the ranks of the mp executor. Without it a placeholder is rendered.
    type: str
    default: ""
  configs:
    description:
      - Contents of C(config.json) by role, C(target) and C(draft), or by the model's folder, as read on a node.
    type: dict
  measured:
    description:
      - Figures of a run, which replace the budget's estimates, such as C(kv_tokens).
      - Where they hold C(start_sha256), only those of a start with the same RV(start_sha256) count.
    type: dict
  listing:
    description:
      - Whether the card is read for a list only. One that does not fit O(node_memory_bytes) does not fail then, and
        warnings are returned in RV(warnings_found) without being shown.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Read the bundled reference card
  dgx_spark.vllm.card_info:
    src: poolside--Laguna-S-2.1-FP8
    models_root: /home/spark/models
    nodes: 2
  register: card

- name: Read an own card with another depth
  dgx_spark.vllm.card_info:
    src: cards/mine.toml
    overrides:
      runtime.vllm_spec_num_tokens: 5
"""

RETURN = r"""
name: {description: "Name of the card.", type: str, returned: success}
file: {description: "The card's file.", type: str, returned: success}
status:
  description: >-
    Whether the deployment was C(measured), C(reported) or is C(untested).
  type: str
  returned: success
card:
  description: The normalised card, defaults filled in.
  returned: success
  type: dict
  contains:
    # Generated from the table of fields.
    model_id: {type: str, returned: where given, description: "The model's id."}
    source_repository: {type: str, returned: where given, description:
      "Where the weights come from, if not from the repository named like the model."}
    source_revision: {type: str, returned: where given, description: "Commit of the weights."}
    n_layers: {type: int, returned: where given, description: "Number of layers."}
    hidden_size: {type: int, returned: where given, description: "Width of the hidden state."}
    num_key_value_heads: {type: int, returned: where given, description: "Heads of keys and values."}
    supports_tensor: {type: bool, returned: where given, description:
      "Whether the model can be divided; false means one node only."}
    tasks: {type: list, elements: str, returned: where given, description:
      "What the model does; `TextGeneration` is what is served here."}
    family: {type: str, returned: where given, description: "The model's family."}
    quantization: {type: str, returned: where given, description:
      "Precision of the weights, for people and for the pairing rule."}
    base_model: {type: str, returned: where given, description: "Name of the base model."}
    capabilities: {type: list, elements: str, returned: where given, description:
      "text, thinking, thinking_toggle, vision, code and so on."}
    context_length: {type: int, returned: where given, description: "Longest context in tokens; 0 means unknown."}
    trust_remote_code: {type: bool, returned: where given, description:
      "Whether code of the repository may run. The flag is given only where the card says true itself."}
    status: {type: str, returned: where given, description:
      "Whether somebody measured this deployment, reported it, or only wrote it down."}
    status_note: {type: str, returned: where given, description: "Who measured what, and when."}
    patches: {type: list, elements: str, returned: where given, description:
      "Bundled patches of the engine that this model needs."}
    extra_args: {type: list, elements: str, returned: where given, description:
      "Arguments handed to `vllm serve` verbatim, last. A flag that has a field of its own is refused."}
    storage_size: {type: dict, returned: where given, description: "Size of what is staged. Keys C(in_bytes)."}
    reasoning: {type: dict, returned: where given, description:
      "How the model reasons. Keys C(supports_toggle), C(supports_budget), C(format), C(default_effort),
      C(disabled_effort)."}
    tooling: {type: dict, returned: where given, description:
      "How the model calls tools. Keys C(supports_tool_calling), C(tool_call_format), C(builtin_tools)."}
    placement: {type: dict, returned: where given, description:
      "Where the model can run. Keys C(compatible_backends), C(backend_preference), C(min_vram_gib),
      C(max_context_tokens)."}
    license: {type: dict, returned: where given, description:
      "The model's licence. Keys C(name), C(display_name), C(spdx_id), C(url), C(notice)."}
    runtime: {type: dict, returned: where given, description:
      "Parsers and speculation, as the public format names them. Keys C(vllm_spec_method), C(vllm_spec_num_tokens),
      C(vllm_spec_draft_repo), C(vllm_spec_draft_revision), C(vllm_tool_call_parser), C(vllm_reasoning_parser)."}
    engine: {type: dict, returned: where given, description:
      "The engine the card was written for. Keys C(vllm), C(variant), C(nccl)."}
    nodes: {type: dict, returned: where given, description: "How many nodes the model takes. Keys C(min), C(max)."}
    parallel: {type: dict, returned: where given, description:
      "How the model is divided, and who starts the ranks. Keys C(tensor_parallel_size), C(pipeline_parallel_size),
      C(data_parallel_size), C(decode_context_parallel_size), C(enable_expert_parallel), C(data_parallel_backend),
      C(distributed_executor_backend), C(master_port)."}
    serve: {type: dict, returned: where given, description:
      "Flags of `vllm serve`, named as there. Keys C(served_model_name), C(runner), C(tokenizer_mode), C(dtype),
      C(quantization), C(load_format), C(safetensors_load_strategy), C(enforce_eager), C(compilation_config),
      C(max_cudagraph_capture_size), C(optimization_level), C(max_model_len), C(gpu_memory_utilization),
      C(kv_cache_memory_bytes), C(kv_cache_dtype), C(block_size), C(mamba_cache_mode), C(mamba_ssm_cache_dtype),
      C(max_num_seqs), C(max_num_batched_tokens), C(enable_prefix_caching), C(enable_chunked_prefill),
      C(async_scheduling), C(disable_hybrid_kv_cache_manager), C(attention_backend), C(moe_backend), C(linear_backend),
      C(all2all_backend), C(enable_flashinfer_autotune), C(disable_custom_all_reduce), C(language_model_only),
      C(limit_mm_per_prompt), C(mm_encoder_tp_mode), C(chat_template), C(default_chat_template_kwargs),
      C(generation_config), C(override_generation_config), C(hf_overrides), C(max_logprobs), C(seed),
      C(stream_interval), C(enable_prompt_tokens_details), C(enable_log_requests), C(disable_log_stats)."}
    speculative: {type: dict, returned: where given, description:
      "The draft beyond what [runtime] says of it. Keys C(draft_folder), C(draft_bytes), C(trained_for), C(config)."}
    environment: {type: dict, returned: where given, description:
      "Environment variables of the engine's processes. Keys C(all), C(head), C(worker)."}
    ray: {type: dict, returned: where given, description:
      "Ray's own arguments. Keys C(num_gpus), C(object_store_memory)."}
    memory: {type: dict, returned: where given, description:
      "Memory caps and allowances. Keys C(head), C(worker), C(driver), C(reserve), C(activation)."}
    architecture: {type: dict, returned: where given, description:
      "Facts of config.json that the memory budget needs before the model is staged. Keys C(num_attention_heads),
      C(head_dim), C(full_attention_layers), C(sliding_attention_layers), C(sliding_window),
      C(linear_attention_layers), C(kv_bytes), C(kv_latent_dim), C(draft_layers)."}
    expect: {type: dict, returned: where given, description:
      "What the deployment must show. Keys C(prompt), C(answer), C(max_tokens), C(acceptance), C(acceptance_min),
      C(decode_tps), C(decode_tps_min), C(kv_tokens), C(memory_head), C(memory_worker), C(ready_s), C(lossless)."}
    layouts: {type: dict, returned: where given, description:
      "A table for each number of nodes, with the sizes of [parallel] that differ there."}
    # End of the generated part.
serve_argv: {description: "Arguments after C(vllm serve), of the head.", type: list, elements: str, returned: success}
rank_argv:
  description: >-
    With the mp executor on several nodes, the arguments of each rank, the head's first.
  type: list
  elements: list
  returned: success
environment:
  description: >-
    The card's variables for C(all) nodes, the C(head) and each C(worker).
  type: dict
  returned: success
start_sha256:
  description: Sum over the arguments of all ranks and the environment, by which a figure of one start is known.
  type: str
  returned: success
ray_argv: {description: "The card's part of C(ray start) on C(head) and C(worker).", type: dict, returned: success}
caps:
  description: >-
    Memory caps in bytes, or null, of C(head), C(worker) and C(driver).
  type: dict
  returned: success
models:
  description: >-
    Target and draft with C(role), C(repo), C(revision), C(name), C(path) and C(bytes).
  type: list
  elements: dict
  returned: success
patches: {description: "Bundled patches that the model needs.", type: list, elements: str, returned: success}
expect: {description: "What the deployment must show.", type: dict, returned: success}
executor: {description: "C(ray) or C(mp).", type: str, returned: success}
nodes:
  description: >-
    Fewest (C(min)) and most (C(max)) nodes, and the number that the arguments are for (C(count)).
  type: dict
  returned: success
devices: {description: "Devices that the arguments are for.", type: int, returned: success}
served_name: {description: "Name that clients ask for.", type: str, returned: success}
engine: {description: "Release of vLLM, variant of the build, and NCCL.", type: dict, returned: success}
required:
  description: >-
    C(disk_bytes) on every node, and C(memory_bytes) on the fullest.
  type: dict
  returned: success
budget:
  description: >-
    Lines of the memory budget with C(name), C(unit), C(value), C(low), C(high), C(formula) and C(source). C(value)
    is null where only bounds are known.
  type: list
  elements: dict
  returned: success
budget_text: {description: "The budget as a table for people.", type: str, returned: success}
verdict: {description: "On how many nodes the model fits, in words.", type: str, returned: success}
fits_by_nodes: {description: "RV(fits) by number of nodes of each division.", type: dict, returned: success}
fits:
  description: >-
    Whether it fits the nodes, or null where the answer lies between the bounds.
  type: bool
  returned: success
provenance:
  description: >-
    Where each value came from, as file and line, C(overrides) or C(default).
  type: dict
  returned: success
notes: {description: "What is worth knowing, such as ignored tables.", type: list, elements: str, returned: success}
warnings_found:
  description: >-
    The warnings, also where there are none; Ansible shows and drops C(warnings).
  type: list
  elements: str
  returned: success
errors:
  description: >-
    Every fault of the card with C(table), C(key), C(line), C(file), C(given), C(allowed) and C(nearest).
  type: list
  elements: dict
  returned: failure
"""
