# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done, what stands in the way, and what differs: from tables, without a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_faults as faults
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_lock as engine_lock
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_plan as planning
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_tags import Target

ROLE = Path(__file__).resolve().parents[4] / "roles/engine"
LOCKS = ROLE / "files/locks"
VARIANTS = yaml.safe_load((ROLE / "vars/main.yml").read_text())["engine_variants_known"]
CU130 = [LOCKS / "pylock.cu130.toml"]


def node(**changes: Any) -> dict[str, Any]:
    spark = {
        "arch": "aarch64",
        "python": {"minor": "3.12", "version": "3.12.3"},
        "gpus": [{"name": "NVIDIA GB10", "driver": "580.95.05", "compute_cap": "12.1"}],
        "nvcc": "13.0",
        "kernel": "6.11.0-1016-nvidia",
        "os": {"pretty_name": "Ubuntu 24.04"},
    }
    return {**spark, **changes}


def state(**changes: Any) -> dict[str, Any]:
    new = {
        "state": "absent", "differences": [], "patches": {}, "current": "", "missing_packages": [],
        "glibc": [2, 39], "disk_free": 1 << 40,
    }  # fmt: skip
    return {**new, **changes}


def errors(variant: str = "cu130", locks: list[Path] = CU130, **changes: Any) -> list[tuple[str, str, str]]:
    where = state(**changes.pop("state", {}))
    comes = changes.pop("toolkit_comes", False)
    found = faults.node_faults("spark-02", variant, VARIANTS[variant], node(**changes), locks, where, comes)
    assert all(item["host"] == "spark-02" and item["cure"] for item in found)
    return [(item["subject"], item["found"], item["expected"]) for item in found]


def test_a_spark_has_no_fault() -> None:
    assert errors() == []
    assert errors("cu129", []) == []


@pytest.mark.parametrize("driver", ["579.9", "550.54.15"])
def test_an_old_driver(driver: str) -> None:
    assert errors(gpus=[{"driver": driver}]) == [("NVIDIA driver", driver, "580 or newer")]


def test_no_gpu() -> None:
    assert errors(gpus=[])[0][:2] == ("NVIDIA driver", "no GPU that nvidia-smi sees")


@pytest.mark.parametrize("nvcc", ["12.4", "12.7", ""])
def test_an_old_or_missing_toolkit(nvcc: str) -> None:
    """C43 and C44: as a unit finds it, and 12.8 or newer."""
    (found,) = errors(nvcc=nvcc)
    assert found[0] == "CUDA toolkit, as a unit finds nvcc"
    assert found[1] == (nvcc or "none")
    assert found[2].startswith("12.8 or newer")
    assert errors(nvcc=nvcc, toolkit_comes=True) == []
    assert errors(nvcc="12.8") == errors(nvcc="12.10") == []


def test_a_cpu_needs_neither() -> None:
    bed = {"arch": "x86_64", "python": {"minor": "3.13", "version": "3.13.5"}, "gpus": [], "nvcc": ""}
    assert errors("cpu", [LOCKS / "pylock.cpu.toml"], state={"glibc": [2, 41]}, **bed) == []


def test_another_architecture_and_another_python() -> None:
    assert errors("cpu", [])[0][:3] == ("architecture", "aarch64", "x86_64")
    assert errors(python={"minor": "3.10", "version": "3.10.1"})[0][:2] == ("Python", "3.10")
    ((subject, found, _),) = errors(python={"minor": "3.14", "version": "3.14.0"})
    assert subject == "lock"
    assert "this node has Python 3.14 on aarch64" in found


def test_too_little_disk_before_anything_is_fetched() -> None:
    ((subject, found, expected),) = errors(state={"disk_free": 3 * 10**9})
    assert (subject, found) == ("disk", "3.0 GB free")
    assert expected.endswith("GB for the wheels and the environment")
    assert errors(state={"disk_free": 0, "state": "ready"}) == []


def test_a_release_is_compared_with_its_lock() -> None:
    wheels = engine_lock.select(engine_lock.read(CU130), Target("3.12", "aarch64", (2, 39)))
    packages = {wheel.package: {"version": wheel.version} for wheel in wheels} | {"": {"version": ""}}
    assert errors(state={"state": "ready", "packages": packages}) == []
    packages["vllm"] = {"version": "0.26.0"}
    packages["stranger"] = {"version": "1"}
    del packages["ray"]
    ((subject, found, expected),) = errors(state={"state": "ready", "packages": packages})
    assert subject == "packages of the release"
    assert found.splitlines() == [
        "ray: absent, by the lock 2.56.0", "stranger: 1, by the lock none", "vllm: 0.26.0, by the lock 0.25.1"
    ]  # fmt: skip
    assert expected == "what the lock says, and nothing else"


def test_all_faults_of_a_node_come_together() -> None:
    found = errors("cu130", [], arch="riscv64", gpus=[{"driver": "535.1"}], nvcc="11.8")
    assert [subject for subject, _, _ in found] == [
        "architecture", "NVIDIA driver", "CUDA toolkit, as a unit finds nvcc"
    ]  # fmt: skip


def test_parity_warns_and_where_it_must_be_equal_it_is_an_error() -> None:
    """C46."""
    nodes = {
        "spark-01": node(),
        "spark-02": node(gpus=[{"driver": "590.1"}], kernel="6.14", python={"minor": "3.12", "version": "3.12.4"}),
    }
    wrong, warned = faults.parity(nodes)
    assert wrong == []
    assert [item["subject"] for item in warned] == ["NVIDIA driver", "kernel", "Python"]
    assert warned[0]["found"] == "spark-01: 580.95.05\nspark-02: 590.1"
    nodes["spark-02"] = node(arch="x86_64", python={"minor": "3.13", "version": "3.13.1"})
    assert [item["subject"] for item in faults.parity(nodes)[0]] == ["Python's minor version", "architecture"]
    assert faults.parity({"a": node(), "b": node()}) == ([], [])
    assert faults.parity({}) == ([], [])


def test_another_vllm_is_possible_and_says_so() -> None:
    row = VARIANTS["cu130"]
    assert faults.validation(row, {"vllm": "0.25.1+cu130"}) == []
    (warning,) = faults.validation(row, {"vllm": "0.26.0"})
    assert warning["found"] == "0.26.0: not validated"


@pytest.mark.parametrize(
    ("card", "have", "errors", "warnings"),
    [
        ("2.28.9", "2.28.9", 0, 0),
        ("2.30.7", "2.28.9", 1, 0),
        ("2.28.9", "2.30.7", 0, 1),
        ("2.30.7", "", 0, 0),
        ("", "2.28.9", 0, 0),
    ],
)
def test_the_cards_rule_reckons_with_the_nccl_that_is_loaded(card: str, have: str, errors: int, warnings: int) -> None:
    """With an older one than the card says, what the card allows would hang."""
    found = faults.nccl("spark-01", card, have)
    assert tuple(map(len, found)) == (errors, warnings)
    for item in [*found[0], *found[1]]:
        assert (item["found"], item["cure"].partition(" ")[0]) == (have, "set")


def plan(variant: str = "cu130", locks: list[Path] = CU130, python: str = "3.12", adopt: str = "") -> dict[str, Any]:
    return planning.plan("/r", variant, VARIANTS[variant], locks, python, adopt)


def test_a_release_is_named_after_lock_variant_and_python() -> None:
    one = plan()
    assert one["path"] == f"/r/releases/{one['id']}"
    assert one["environment"]["PATH"].startswith(f"{one['path']}/bin:/usr/local/cuda/bin:")
    assert plan(python="3.13")["id"] != one["id"]
    assert one["expected"] == {
        "vllm": "0.25.1", "torch": "2.11.0", "torch_cuda": "13.0", "ray": "2.56.0", "nccl": "2.28.9"
    }  # fmt: skip


def test_another_nccl_is_another_release() -> None:
    other = plan(locks=[*CU130, LOCKS / planning.nccl_lock_name("cu130", "2.30.7")])
    assert other["id"] != plan()["id"]
    assert other["expected"]["nccl"] == "2.30.7"


SETTLED = {"state": "ready", "patches": {"p": {"patch_sha256": "1"}}}


@pytest.mark.parametrize(
    ("changes", "patches", "todo"),
    [
        ({}, {"p": "1"}, ["build", "patch", "switch"]),
        ({"state": "partial"}, {}, ["build", "switch"]),
        ({"missing_packages": ["libnuma1"]}, {}, ["packages", "build", "switch"]),
        ({**SETTLED, "current": "here"}, {"p": "1"}, []),
        ({**SETTLED, "current": "other"}, {"p": "1"}, ["switch"]),
        ({**SETTLED, "current": "here"}, {"p": "2"}, ["patch"]),
        ({**SETTLED, "current": "here"}, {"p": "1", "q": "1"}, ["patch"]),
        ({**SETTLED, "current": "here"}, {}, []),
        ({**SETTLED, "state": "damaged", "current": "here"}, {"p": "1"}, ["repair"]),
        (
            {"state": "damaged", "current": "here", "patches": {"p": {"patch_sha256": "1", "file": "f"}},
             "differences": [{"path": "f"}]},
            {"p": "1"},
            ["repair", "patch"],
        ),
    ],
)  # fmt: skip
def test_what_is_to_be_done(changes: dict[str, Any], patches: dict[str, str], todo: list[str]) -> None:
    planned = plan()
    now = state(**changes)
    now["current"] = planned["path"] if now["current"] == "here" else now["current"]
    assert planning.steps(planned, now, patches, False, False) == todo


def test_a_lock_comes_first() -> None:
    assert planning.steps(plan(locks=[]), state(), {}, False, False) == ["lock"]
    assert planning.find_locks("cu129", "", [LOCKS])[1] == ["pylock.cu129.toml"]
    assert planning.find_locks("cu130", "2.30.7", [LOCKS])[1] == []
    assert planning.find_locks("cu130", "9.9", [LOCKS])[1] == ["pylock.cu130-nccl-9-9.toml"]


def test_the_inventorys_lock_wins(tmp_path: Path) -> None:
    (tmp_path / "pylock.cu130.toml").write_text("")
    assert planning.find_locks("cu130", "", [tmp_path, LOCKS])[0] == [tmp_path / "pylock.cu130.toml"]


def test_variants_that_could_be_used_instead() -> None:
    assert planning.alternatives("cu129", VARIANTS, "aarch64", True, [LOCKS]) == ["cu130"]
    assert planning.alternatives("cu129", VARIANTS, "riscv64", True, [LOCKS]) == []


def test_an_adopted_environment_is_only_ever_verified() -> None:
    planned = plan(adopt="/venv")
    assert planned["id"].startswith("adopted-")
    assert planning.steps(planned, state(), {}, True, False) == ["adopt", "switch"]
    assert planning.steps(planned, state(state="damaged", current="/venv"), {"p": "1"}, True, False) == ["adopt"]
    ready = state(state="ready", current="/venv")
    assert planning.steps(planned, ready, {}, True, False) == []
    assert planning.steps(planned, ready, {"p": "1"}, True, False) == ["adopt"]


def test_it_is_said_in_words() -> None:
    todo = list(planning.STEPS)
    where = state(difference_count=2, missing_packages=["ffmpeg"], current="/r/releases/old")
    planned = {
        **plan(),
        "variant": "cu130",
        "row": VARIANTS["cu130"],
        "node": where,
        "todo": todo,
        "patches": {"p": ""},
    }
    lines = planning.summary("spark-02", planned)
    assert len(lines) == len(todo)
    assert "spark-02: install the CUDA toolkit cuda-toolkit-13-0" in lines
    assert f"spark-02: make {planned['id']} current in place of old" in lines
    assert f"build release {planned['id']}: 211 packages, vLLM 0.25.1, torch 2.11.0 for CUDA 13.0" in lines[3]


def test_a_difference_is_said_with_package_and_file_before_it_is_repaired() -> None:
    lines = [{"path": f"lib/x{n}.so", "package": "torch", "problem": "changed"} for n in range(12)]
    where = state(state="damaged", differences=lines, difference_count=12)
    (found,) = faults.to_report("spark-02", {"id": "r", "node": where, "todo": ["repair"], "patches": {}})
    assert found["subject"] == "package torch in release r"
    assert "lib/x0.so: changed" in found["found"]
    assert "and 2 more" in found["found"]
    assert "12 files in all" in found["cure"]


def test_patched_on_one_node_only_is_reported() -> None:
    """C53."""
    where = state(state="ready")
    (found,) = faults.to_report("spark-02", {"id": "r", "node": where, "todo": ["patch"], "patches": {"laguna": ""}})
    assert (found["host"], found["found"], found["expected"]) == ("spark-02", "none", "laguna")


def test_patches_are_found_in_the_owners_folder_first(tmp_path: Path) -> None:
    bundled = ROLE.parent / "patches/files"
    found, unknown = planning.find_patches(["laguna_dflash_get_cache_scale", "mine"], [tmp_path, bundled])
    assert unknown == ["mine"]
    (tmp_path / "laguna_dflash_get_cache_scale.toml").write_text("")
    again, _ = planning.find_patches(["laguna_dflash_get_cache_scale"], [tmp_path, bundled])
    assert again != found


@pytest.mark.parametrize(
    ("todo", "said"), [(["build", "switch"], 1), (["repair"], 1), (["lock"], 1), (["switch"], 0), ([], 0)]
)
def test_a_controller_without_rsync_is_named_before_wheels_are_fetched(todo: list[str], said: int) -> None:
    """A fresh controller fetched 3 GB before it said that it could not pass them on."""
    found = [(item["subject"], item["found"]) for item in faults.controller(todo, ["rsync"])]
    assert found == [("rsync on the controller", "not installed")] * said
    assert faults.controller(todo, []) == []
