# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long cards take: 1,000 cards checked in one process in under 2 s, each derived completely in a few ms.

Run from a checkout: `python benchmarks/cards.py`. Exits with 1 where a bound is missed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _card, _card_load, _card_toml  # noqa: E402

CARDS = 1_000
MOST_SECONDS = 2.0
MOST_SECONDS_EACH = 0.05


def write(folder: Path) -> list[str]:
    """Cards that differ from the bundled ones in a number each."""
    names = sorted(path.stem for path in (ROOT / "cards").glob("*.toml"))
    found = []
    for at in range(CARDS):
        source = _card_load.load(names[at % len(names)], [ROOT / "cards"])
        source.data.pop("extends", None)
        source.data.setdefault("serve", {})["seed"] = at
        path = folder / f"card-{at}.toml"
        path.write_text(_card_toml.dump(source.data), encoding="utf-8")
        found.append(str(path))
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        paths = write(Path(name))
        start = time.process_time()
        for path in paths:
            _card.normalise(_card_load.load(path, []))
        checked = time.process_time() - start
        each = []
        for path in paths:
            start = time.process_time()
            _card.card_info(path, [], models_root="/m", host="0.0.0.0", port=8000)
            each.append(time.process_time() - start)
    print(f"{CARDS} cards read and checked: {checked:.2f} s (bound {MOST_SECONDS} s)")
    print(f"a card with all that follows from it: median {statistics.median(each) * 1e3:.2f} ms, "
          f"longest {max(each) * 1e3:.2f} ms (bound {MOST_SECONDS_EACH * 1e3:.0f} ms)")  # fmt: skip
    return 0 if checked < MOST_SECONDS and max(each) < MOST_SECONDS_EACH else 1


if __name__ == "__main__":
    sys.exit(main())
