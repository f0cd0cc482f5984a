# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the quick check of a tree takes that has as many tensors as the reference: 24 shards, under 1 s.

Run from a checkout: `python benchmarks/model_tree.py`. Exits with 1 where the bound is missed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree import check  # noqa: E402

from tests.unit.plugins.module_utils.model_trees import make_tree  # noqa: E402

# 256 experts in 47 layers, weight and scale of three matrices.
TENSORS = 47 * 256 * 3 * 2
BOUND_S = 1.0


def main() -> int:
    """Exit code 0 where the bound holds."""
    with tempfile.TemporaryDirectory() as folder:
        tree = make_tree(Path(folder, "model"), shards=24, tensors=TENSORS // 24, length=1)
        took = []
        for _round in range(3):
            began = time.perf_counter()
            found = check(tree)
            took.append(time.perf_counter() - began)
            if not found.complete:
                raise SystemExit(f"the tree is not complete: {found}")
    print(f"{TENSORS:,} tensors in 24 shards: {min(took):.2f} s, the best of three (bound {BOUND_S} s)")
    return 1 if min(took) > BOUND_S else 0


if __name__ == "__main__":
    sys.exit(main())
