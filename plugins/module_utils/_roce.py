# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The fabric of one host: `read` what is there, `resolve` which rails, GID index and environment follow.

This is the only resolver there is: modules call it over SSH and units run it at every start (see `_fabric_env`).
Everything but `read` is a pure function of plain data. Imports are few because a unit's start pays for them.
"""

from __future__ import annotations

from ._roce_read import read
from ._roce_resolve import resolve

__all__ = ["read", "resolve"]
