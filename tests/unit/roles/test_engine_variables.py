# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NCCL is installed and which one the card's rules reckon with: one wish, by either of two ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.plugins.card_play import ROOT, play

# What is wished for, the card's own, the variant; what is to replace the lock's, and what the card is told.
CASES = (
    ({}, "2.28.9", "cu130", "", {}),
    ({"engine_nccl": "2.30.7"}, "2.30.7", "cu130", "2.30.7", {"engine.nccl": "2.30.7"}),
    ({"engine_nccl": "2.28.9"}, "2.28.9", "cu130", "", {"engine.nccl": "2.28.9"}),
    ({"model_card_overrides": {"engine.nccl": "2.30.7"}}, "2.30.7", "cu129", "2.30.7", {"engine.nccl": "2.30.7"}),
    ({}, "2.28.9", "own", "", {}),
    ({"engine_nccl": "2.30.7"}, "2.30.7", "own", "2.30.7", {"engine.nccl": "2.30.7"}),
)


def test_one_wish_for_an_nccl_reaches_the_lock_and_the_card(tmp_path: Path) -> None:
    files = [
        ROOT / f"roles/{role}/{kind}/main.yml"
        for role, kind in (("engine", "defaults"), ("engine", "vars"), ("deployment", "defaults"))
    ]
    tasks: list[dict[str, Any]] = [
        {"name": "Read", "ansible.builtin.include_vars": {"file": str(path), "name": f"read_{number}"}}
        for number, path in enumerate(files)
    ]
    names = ("_engine_nccl", "_engine_nccl_wanted", "_engine_nccl_locked", "engine_variants_known")
    for wished, card, variant, _replaces, _told in CASES:
        given = {
            **{name: f"{{{{ read_1.{name} }}}}" for name in names},
            "deployment_card_overrides": "{{ read_2.deployment_card_overrides }}",
            "engine_variants_extra": {"own": {}},
            "engine_variant": variant,
            "deployment": {"card": {"engine": {"nccl": card}}},
            "engine_nccl": "",
            **wished,
        }
        said = {"msg": ["{{ _engine_nccl }}", "{{ deployment_card_overrides }}"]}
        tasks.append({"name": "Say", "ansible.builtin.debug": said, "vars": given})
    found = [result["msg"] for result in play(tmp_path, tasks)[len(files) :]]
    assert found == [[replaces, told] for _wished, _card, _variant, replaces, told in CASES]
