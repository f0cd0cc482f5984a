# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder of files stands for a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _host_facts as facts

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max locked memory         8388608              8388608              bytes
Max open files            1024                 524288               files
"""


def test_memory_is_in_bytes() -> None:
    text = "MemTotal:       125458320 kB\nMemFree: 1 kB\nMemAvailable:   118489088 kB\n"
    assert facts.parse_meminfo(text) == {"total": 125458320 * 1024, "available": 118489088 * 1024}


def test_limits_of_a_process() -> None:
    found = facts.parse_limits(LIMITS)
    assert found["memlock"] == {"soft": 8388608, "hard": 8388608}
    assert facts.parse_limits(LIMITS.replace("8388608", "unlimited"))["memlock"] == {"soft": None, "hard": None}


def test_listening_ports_only() -> None:
    table = (
        "  sl  local_address rem_address   st\n"
        "   0: 00000000:1F40 00000000:0000 0A\n"
        "   1: 0100007F:18EB 0100007F:1234 01\n"
    )
    assert facts.parse_listening(table, "") == [8000]


@pytest.mark.parametrize(
    ("texts", "removes"),
    [([], True), (["[Login]\n#RemoveIPC=no\n"], True), (["[Login]\nRemoveIPC=yes", "[Login]\nRemoveIPC=no"], False)],
)
def test_remove_ipc_last_word_wins(texts: list[str], removes: bool) -> None:
    assert facts.parse_remove_ipc(texts) is removes


def test_gpus_and_compiler() -> None:
    assert facts.parse_gpus("NVIDIA GB10, 580.95.05, 12.1\n") == [
        {"name": "NVIDIA GB10", "driver": "580.95.05", "compute_cap": "12.1"}
    ]
    assert facts.parse_gpus("No devices were found\n") == []
    assert facts.parse_nvcc("Cuda compilation tools, release 12.9, V12.9.86\n") == "12.9"


def test_probe_reads_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "etc/systemd/logind.conf.d").mkdir(parents=True)
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text('ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="DGX OS 7"\n')
    (tmp_path / "etc/systemd/logind.conf.d/10.conf").write_text("[Login]\nRemoveIPC=no\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 4 kB\nMemAvailable: 2 kB\n")
    bin_dir = tmp_path / "usr/local/cuda/bin"
    bin_dir.mkdir(parents=True)
    (bin_dir / "nvcc").write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.48'\n")
    (bin_dir / "nvcc").chmod(0o755)
    found = facts.probe(str(tmp_path), f"{bin_dir}:/usr/bin:/bin", [str(tmp_path / "not/there")], "state")
    assert found["os"] == {"id": "ubuntu", "version_id": "24.04", "pretty_name": "DGX OS 7"}
    assert found["remove_ipc"] is False
    assert found["memory"] == {"total": 4096, "available": 2048}
    assert found["nvcc"] == "13.0"
    assert found["gpus"] == []
    assert found["linger"] is False
    assert found["release"] == ""
    assert found["disk"][str(tmp_path / "not/there")] > 0


def test_a_program_that_hangs_or_fails_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert facts._run(["nvidia-smi"], str(tmp_path)) == ""
    assert facts._run(["no-such-program"], str(tmp_path)) == ""


def test_configs_of_staged_models_and_the_last_starts_figures(tmp_path: Path) -> None:
    models = tmp_path / "models"
    for name, text in (("good", '{"num_hidden_layers": 4}'), ("torn", '{"num'), ("list", "[1]"), (".stage", "{}")):
        (models / name).mkdir(parents=True)
        (models / name / "config.json").write_text(text)
    (models / "huge").mkdir()
    (models / "huge" / "config.json").write_text(" " * (facts.MOST_CONFIG_BYTES + 1))
    (tmp_path / "s/state").mkdir(parents=True)
    (tmp_path / "s/state/measured.json").write_text('{"kv_tokens": 5}')
    found = facts.probe("/", "/nowhere", [], str(tmp_path / "s"), str(models))
    assert found["configs"] == {"good": {"num_hidden_layers": 4}}
    assert found["measured"] == {"kv_tokens": 5}
    assert facts.probe("/", "/nowhere", [], str(tmp_path / "t"))["configs"] == {}


def test_units_of_ours_are_told_from_others_of_the_same_name(tmp_path: Path) -> None:
    user, system = tmp_path / "home/.config/systemd/user", tmp_path / "etc/systemd/system"
    for folder in (user, system):
        folder.mkdir(parents=True)
    (user / "vllm-serve.service").write_text("ExecStart=/home/s/.local/share/dgx-spark-vllm/bin/fabric-env run")
    (system / "vllm-serve.service").write_text("ExecStart=/home/s/venvs/vllm/bin/vllm serve")
    (system / "vllm-guard.service").write_text("ExecStart=/home/s/.local/share/dgx-spark-vllm/bin/vllm-node guard")
    found = facts.unit_files(tmp_path, tmp_path / "home")
    assert found == {"user": ["vllm-serve.service"], "system": ["vllm-guard.service"]}
