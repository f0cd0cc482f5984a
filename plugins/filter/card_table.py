# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of card_info -> a table; the thinking is in module_utils/_card_list.py."""

from __future__ import annotations

DOCUMENTATION = r"""
name: card_table
short_description: Cards as a table for people
version_added: "0.1.0"
author: "dgx_spark.vllm contributors (@dgx-spark)"
description:
  - Makes one line a card, with size, nodes, context, speculation, status, and whether it fits.
options:
  _input:
    description: Results of M(dgx_spark.vllm.card_info).
    type: list
    elements: dict
    required: true
  nodes:
    description: Number of nodes at hand.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Show what was read
  ansible.builtin.debug:
    msg: "{{ cards.results | dgx_spark.vllm.card_table(nodes=2) }}"
"""

RETURN = r"""
_value:
  description: The table as text.
  type: str
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _card_list


def card_table(results: Iterable[Mapping[str, Any]], nodes: int = 0) -> str:
    """The table as text."""
    try:
        return _card_list.table(results, int(nodes))
    except (TypeError, ValueError, KeyError, AttributeError) as err:
        raise AnsibleFilterError(f"card_table: not the results of card_info: {err}") from err


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"card_table": card_table}
