# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters under Ansible's own templating."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.plugins.card_play import play

ARGV = ["/usr/bin/x", "a b", "50%", "$HOME", 'say "hi"', ";", "", "é\n\\"]
TEXTS = {
    "argv": ("{{ argv | dgx_spark.vllm.systemd_argv }}",
             '/usr/bin/x "a b" 50%% $$HOME "say \\"hi\\"" ";" "" "é\\n\\\\"'),
    "program": ("{{ ['/opt/$x/y'] | dgx_spark.vllm.systemd_argv(program=true) }}", "@/opt/$x/y /opt/$$x/y"),
    "env": ("{{ env | dgx_spark.vllm.systemd_env }}", 'Environment=A=50%%\nEnvironment="B=a b"'),
    "no list": ("{{ 'a' | dgx_spark.vllm.systemd_argv }}", "systemd_argv: a list of arguments is needed"),
    "no text": ("{{ [none] | dgx_spark.vllm.systemd_argv }}", "systemd_argv: argument: None is no text"),
    "relative": ("{{ ['x'] | dgx_spark.vllm.systemd_argv(program=true) }}", "systemd_argv: program: 'x' is no"),
    "name": ("{{ {'1': 'x'} | dgx_spark.vllm.systemd_env }}", "systemd_env: variable '1'"),
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    variables = {"argv": ARGV, "env": {"B": "a b", "A": "50%"}}
    tasks = [{"ansible.builtin.debug": {"msg": text}, "vars": variables} for text, _expected in TEXTS.values()]
    folder: Path = tmp_path_factory.mktemp("filters")
    return dict(zip(TEXTS, play(folder, tasks), strict=True))


@pytest.mark.parametrize("name", TEXTS)
def test_a_template_renders_or_fails_with_the_filters_name(results: dict[str, dict[str, Any]], name: str) -> None:
    expected, found = TEXTS[name][1], results[name]
    if expected.startswith("systemd_"):
        assert found["failed"]
        assert expected in found["msg"]
    else:
        assert found["msg"] == expected
