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
    description: Contents of C(config.json) by role, C(target) and C(draft), as read on a node.
    type: dict
  measured:
    description: Figures of a run, which replace the budget's estimates, such as C(kv_tokens).
    type: dict
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
card:
  description: The normalised card.
  returned: success
  type: dict
serve_argv:
  description: Arguments after C(vllm serve).
  returned: success
  type: list
  elements: str
errors:
  description: Every fault of the card, with table, key, line, what was given and what is allowed.
  returned: failure
  type: list
  elements: dict
"""
