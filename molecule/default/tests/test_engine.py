# SPDX-License-Identifier: GPL-3.0-or-later
"""The real engine judges what the collection renders and patches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bed import nodes

testinfra_hosts = [f"ansible://{nodes.HEAD}"]
ENGINE = nodes.ROOT / "tests/engine"
PYTHON = f"{nodes.STATE}/current/bin/python"
TARGET = f"{nodes.MODELS}/Laguna-Chain-Tiny"
DRAFT = f"{nodes.MODELS}/Laguna-Chain-Tiny-DFlash-W4A16"


def engine(host: Any, script: str, arguments: str) -> Any:
    """The last line of a script under the engine's Python on the node, read as JSON."""
    nodes.put(host, ENGINE / script, f"/tmp/{script}")
    done = host.run(f"cd /tmp && VLLM_NO_USAGE_STATS=1 {PYTHON} {script} {arguments}")
    assert done.stdout.strip(), done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_the_patched_loader_takes_the_quantized_draft(host: Any) -> None:
    verdict = engine(host, "loader.py", f"{TARGET} {DRAFT}")
    assert verdict.get("loaded"), verdict
    # Scales of the KV cache, which a W4A16 draft does not have: the loader's own defaults hold.
    scales = ("_scale", "_zero_point")
    assert [name for name in verdict["missing"] if not (".attn." in name and name.endswith(scales))] == []


def test_the_loader_as_shipped_fails_with_the_real_error(host: Any, tmp_path: Path) -> None:
    module = f"{nodes.STATE}/current/lib/python3*/site-packages/vllm/model_executor/models/laguna_dflash.py"
    patched = nodes.out(host, f"cat {module}")
    guard = 'and hasattr(self.quant_config, "get_cache_scale")'
    assert patched.count(guard) == 1
    (tmp_path / "shipped.py").write_text(patched.replace(guard, "and True") + "\n", encoding="utf-8")
    nodes.put(host, tmp_path / "shipped.py", "/tmp/shipped.py")
    verdict = engine(host, "loader.py", f"{TARGET} {DRAFT} /tmp/shipped.py")
    assert verdict.get("error") == "AttributeError", verdict
    assert "'CompressedTensorsConfig' object has no attribute 'get_cache_scale'" in verdict["message"]


def test_vllms_own_parser_takes_every_list_that_a_card_renders(host: Any, tmp_path: Path) -> None:
    argv = [sys.executable, str(ENGINE / "card_lists.py"), nodes.MODELS]
    lists = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    (tmp_path / "lists.json").write_text(lists, encoding="utf-8")
    nodes.put(host, tmp_path / "lists.json", "/tmp/lists.json")
    verdicts = engine(host, "check_argv.py", "< /tmp/lists.json")
    assert len(verdicts) == len(json.loads(lists))
    assert {name: found for name, found in verdicts.items() if not found["ok"]} == {}


@pytest.fixture
def proof(host: Any, tmp_path: Path) -> Any:
    """Unit files of 200 random argument lists, on the node."""
    script = [sys.executable, str(ENGINE / "unit_argv.py")]
    lists = subprocess.run([*script, "lists"], check=True, capture_output=True, text=True).stdout
    subprocess.run([*script, "units", str(tmp_path / "proof")], check=True, input=lists, text=True)
    host.run("rm -rf /tmp/proof")
    nodes.put(host, tmp_path / "proof", "/tmp/proof")
    nodes.put(host, ENGINE / "unit_argv.py", "/tmp/unit_argv.py")
    return host


def test_a_process_receives_its_list_byte_for_byte(proof: Any) -> None:
    done = proof.run(f"{nodes.USER_BUS} /usr/bin/python3 /tmp/unit_argv.py run /tmp/proof")
    assert done.rc == 0, done.stdout[-3000:] + done.stderr[-3000:]
