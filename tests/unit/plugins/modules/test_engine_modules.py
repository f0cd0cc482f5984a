# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's modules in real plays on this machine: install, look, damage, repair, switch, pass on, adopt."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_lock
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_wheels import describe

from tests.unit.plugins import engine_makers as makers
from tests.unit.plugins.card_play import play
from tests.unit.plugins.engine_releases import EXPECTED, SITE, built

NAME = "0123456789abcdef"


def module(name: str, **arguments: Any) -> dict[str, Any]:
    """A task; `check` runs it in check mode."""
    return {
        "check_mode": arguments.pop("check", False),
        f"dgx_spark.vllm.engine_{name}": arguments,
        "diff": True,
        "vars": {"ansible_python_interpreter": sys.executable},
    }


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lock of three packages, one of them built from sources, and uv's."""
    folder = tmp_path_factory.mktemp("locks")
    paths = [makers.wheel(folder / "www", name, makers.VERSIONS[name], makers.FILES[name]) for name in ("torch", "ray")]
    shim = folder / "sources/vllm-0.25.1+cpu"
    (shim / "vllm").mkdir(parents=True)
    info = shim / "vllm-0.25.1+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.25.1+cpu\n")
    (info / "entry_points.txt").write_text(makers.SCRIPTS["vllm"])
    for name, text in makers.FILES["vllm"].items():
        (shim / name).parent.mkdir(parents=True, exist_ok=True)
        (shim / name).write_text(text)
    wheels = [makers.describe(path, path.as_uri()) for path in paths]
    target = makers.TARGET
    merged = _engine_lock.merge([(target, makers.pylock(wheels).encode())], [describe(shim)], {"variant": "t"})
    (folder / "pylock.t.toml").write_bytes(merged)
    uv = makers.uv_wheel(folder / "www")
    merged = _engine_lock.merge([(target, makers.pylock([makers.describe(uv, uv.as_uri())]).encode())], [], {})
    (folder / "pylock.uv.toml").write_bytes(merged)
    return folder


def test_from_a_lock_to_a_current_release(locks: Path, tmp_path: Path) -> None:
    root, house = tmp_path / "root", tmp_path / "root/wheelhouse" / NAME
    (root / "releases").mkdir(parents=True)
    wanted = {
        "dest": str(house), "locks": [str(locks / "pylock.t.toml")], "uv_lock": str(locks / "pylock.uv.toml"),
        "sources": str(locks / "sources"), "python": makers.TARGET.python, "arch": "x86_64", "glibc": [2, 31],
        "reserve": 0,
    }  # fmt: skip
    build = {"root": str(root), "id": NAME, "wheelhouse": str(house), "python": sys.executable, "expected": EXPECTED}
    switch = {"root": str(root), "path": str(root / "releases" / NAME), "unit_dir": str(tmp_path)}
    results = play(
        tmp_path,
        [
            module("wheelhouse", check=True, **wanted),
            module("build", check=True, **build),
            module("switch", check=True, **switch),
            module("wheelhouse", **wanted),
            module("wheelhouse", **wanted),
            module("build", **build),
            module("build", **build),
            module("switch", **switch, keep_wheels=False),
            module("switch", **switch),
            module("info", root=str(root), id=NAME),
        ],
    )
    assert [result["changed"] for result in results] == [True] * 4 + [False, True, False, True, False, False]
    assert results[0]["missing_bytes"] > 300_000
    assert results[3]["fetched_bytes"] == results[4]["kept_bytes"] - results[4]["listing"]["wheels"][2][4]
    assert results[5]["release"]["versions"]["vllm"] == "0.25.1+cpu"
    assert results[9]["state"] == "ready"
    assert results[9]["current"] == str(root / "releases" / NAME)
    assert not house.exists()


def test_damage_and_repair(tmp_path: Path) -> None:
    release = built(tmp_path, NAME)
    (release / SITE / "ray/core.py").write_text("edited\n")
    arguments = {"root": str(tmp_path), "id": NAME, "wheelhouse": str(tmp_path / "wheelhouse" / NAME)}
    results = play(
        tmp_path,
        [
            module("info", root=str(tmp_path), id=NAME),
            module("repair", check=True, **arguments),
            module("repair", **arguments, paths=[f"{SITE}/ray/core.py"]),
            module("repair", **arguments, deep=True),
            module("repair", **{**arguments, "id": "none"}),
        ],
    )
    assert results[0]["differences"][0]["package"] == "ray"
    assert [result["changed"] for result in results] == [False, True, True, False, False]
    assert results[1]["diff"]["before"] == f"ray: {SITE}/ray/core.py: changed\n"
    assert results[4]["failed"]


def test_one_node_passes_its_wheels_on(tmp_path: Path) -> None:
    house = makers.wheelhouse(tmp_path / "house")
    listing = json.loads((house / "wheels.json").read_text())
    own = {"listing": listing, "reserve": 0}
    results = play(
        tmp_path,
        [
            {**module("offer", folder=str(house), address="127.0.0.1", peers=["127.0.0.1"]), "register": "offer"},
            module("wheelhouse", dest=str(tmp_path / "all"), mirror="{{ offer.url }}", **own),
            module("wheelhouse", dest=str(tmp_path / "part"), mirror="{{ offer.url }}", only=["ray"], **own),
            module("wheelhouse", dest=str(tmp_path / "x"), mirror="{{ offer.url }}x", only=["ray"], **own),
            module("offer", state="absent", url="{{ offer.url }}"),
        ],
    )
    assert results[1]["fetched_bytes"] == sum(path.stat().st_size for path in house.glob("*.whl"))
    assert [path.name for path in (tmp_path / "part").glob("*.whl")] == ["ray-2.56.0-py3-none-any.whl"]
    assert "ray-2.56.0-py3-none-any.whl: HTTP 404" in results[3]["msg"]
    assert results[4]["ended"]


def test_what_cannot_be_done_is_named(tmp_path: Path, locks: Path) -> None:
    house = makers.wheelhouse(tmp_path / "wheelhouse" / NAME)
    (tmp_path / "releases").mkdir()
    build = {"root": str(tmp_path), "id": NAME, "wheelhouse": str(house), "python": sys.executable}
    lock = {"uv_lock": str(locks / "pylock.uv.toml"), "sources": str(locks / "sources")}
    results = play(
        tmp_path,
        [
            module("build", **build, expected={"torch_cuda": "12.9"}),
            module("switch", root=str(tmp_path), path=str(tmp_path / "releases/none"), unit_dir=str(tmp_path)),
            module(
                "wheelhouse", dest=str(tmp_path / "w"), locks=["/nonexistent"], python="3.12", arch="x86_64", **lock
            ),
            module("wheelhouse", dest=str(tmp_path / "w")),
            module(
                "wheelhouse",
                dest=str(tmp_path / "w"),
                locks=[str(locks / "pylock.t.toml")],
                python="3.9",
                arch="s390x",
                **lock,
            ),
            module("adopt", root=str(tmp_path), id="a", path=str(tmp_path)),
        ],
    )
    messages = [
        "torch_cuda is 13.0, expected 12.9", "is not there; a release must be built", "/nonexistent",
        "is missing beside", "this node has Python 3.9 on s390x", "must name an environment with vLLM",
    ]  # fmt: skip
    for result, message in zip(results, messages, strict=True):
        assert result["failed"]
        assert message in result["msg"]
    assert not (tmp_path / "current").exists()


def test_an_environment_is_adopted(tmp_path: Path) -> None:
    venv = built(tmp_path / "theirs", "venv")
    for name in ("manifest.json", "release.json", "generated.zip"):
        (venv / name).unlink()
    arguments = {"root": str(tmp_path / "ours"), "id": "adopted-1", "path": str(venv), "expected": EXPECTED}
    results = play(
        tmp_path,
        [
            module("adopt", check=True, **arguments),
            module("adopt", **arguments),
            module("info", root=str(tmp_path / "ours"), id="adopted-1", path=str(venv), deep=True),
        ],
    )
    assert results[1]["release"]["path"] == str(venv)
    assert results[2]["state"] == "ready"
