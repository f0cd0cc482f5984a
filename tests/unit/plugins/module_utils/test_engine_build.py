# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds and repairs by the real uv: what the user has set has no say, and what is killed is finished by the next."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import (
    _engine_build,
    _engine_repair,
    _engine_state,
    _manifest,
    _release,
)

from tests.unit.plugins import engine_makers as makers
from tests.unit.plugins.engine_makers import FILES, wheelhouse
from tests.unit.plugins.engine_releases import EXPECTED, SITE, built

NAME = "0123456789abcdef"
ROOT = Path(__file__).resolve().parents[4]


def build(root: Path, expected: dict[str, str] | None = None, programs: list[str] | None = None) -> None:
    house = wheelhouse(root / "wheelhouse" / NAME)
    want = EXPECTED if expected is None else expected
    _engine_build.build(root, NAME, house, sys.executable, want, ["ray"], programs or [], {}, 60)


def test_a_release_is_whole_and_runs(tmp_path: Path) -> None:
    release = built(tmp_path, NAME)
    done = subprocess.run([f"{release}/bin/vllm"], capture_output=True, text=True, check=True, env={"PATH": "/bin"})
    assert done.stdout == "0.25.1+cpu\n"
    summary = json.loads((release / "release.json").read_text())
    assert summary["versions"]["torch_cuda"] == "13.0"
    assert summary["digest"] == _manifest.load(release / _manifest.NAME)["digest"]
    assert (tmp_path / "uv/0.0.1/uv").stat().st_mode & 0o111
    assert not list((tmp_path / "releases").glob(".*.cache"))


def test_nothing_is_written_through_a_link_to_anything_else(tmp_path: Path) -> None:
    """Files that share their bytes with uv's cache would be poisoned by one edit."""
    release = built(tmp_path, NAME)
    assert {path.stat().st_nlink for path in release.rglob("*") if path.is_file() and not path.is_symlink()} == {1}


def test_a_second_build_changes_nothing(tmp_path: Path) -> None:
    release = built(tmp_path, NAME)
    stamp = (release / _manifest.NAME).stat().st_mtime_ns
    result = _engine_build.build(tmp_path, NAME, tmp_path / "gone", sys.executable, EXPECTED, [], [], {}, 60)
    assert not result["built"]
    assert (release / _manifest.NAME).stat().st_mtime_ns == stamp


def test_settings_of_the_user_have_no_influence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C47: every one of these breaks an installation that listens to it."""
    home = tmp_path / "home"
    for path in (".config/uv/uv.toml", ".config/pip/pip.conf", ".pip/pip.conf"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(
            '[pip]\nindex-url = "http://127.0.0.1:9"\nrequire-hashes = false\n[global]\ntarget=/x\n'
        )
    poison = tmp_path / "poison"
    poison.mkdir()
    (poison / "torch.py").write_text("raise SystemExit('of the user')\n")
    (poison / "sitecustomize.py").write_text("raise SystemExit('of the user')\n")
    values = {
        "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "PYTHONPATH": str(poison),
        "PYTHONHOME": "", "CONDA_PREFIX": str(poison), "VIRTUAL_ENV": str(poison), "UV_INDEX_URL": "http://127.0.0.1:9",
        "UV_DEFAULT_INDEX": "http://127.0.0.1:9", "UV_NO_BINARY": "1", "UV_LINK_MODE": "symlink",
        "UV_TARGET": str(poison),
        "UV_PYTHON": "/usr/bin/false", "UV_CONFIG_FILE": str(home / ".config/uv/uv.toml"), "UV_FIND_LINKS": str(poison),
        "UV_CONSTRAINT": str(poison / "none"), "UV_CACHE_DIR": str(poison), "UV_PROJECT_ENVIRONMENT": str(poison),
        "PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_NO_BINARY": ":all:", "PIP_TARGET": str(poison),
    }  # fmt: skip
    for key, value in values.items():
        monkeypatch.setenv(key, value)
    release = built(tmp_path / "root", NAME)
    for key in values:
        monkeypatch.delenv(key)
    plain = built(tmp_path / "plain", NAME)
    sums = [_manifest.load(path / _manifest.NAME)["digest"] for path in (release, plain)]
    assert sums[0] == sums[1]
    assert sorted(path.name for path in poison.iterdir()) == ["sitecustomize.py", "torch.py"]


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"torch_cuda": "12.9"}, "torch_cuda is 13.0, expected 12.9"),
        ({"vllm": "0.26.0"}, r"vllm is 0.25.1\+cpu, expected 0.26.0"),
        ({"ray": "2.50", "torch": "2.10"}, "torch is 2.11.0.cu130, expected 2.10"),
    ],
)
def test_what_is_not_as_asked_for_is_an_error_with_both(tmp_path: Path, expected: dict[str, str], message: str) -> None:
    """C42. What was built stays without a manifest, and so is not taken for a release."""
    with pytest.raises(_engine_build.BuildError, match=message):
        build(tmp_path, expected)
    assert _release.complete(tmp_path) == []


def test_a_build_without_cuda_is_named() -> None:
    assert _engine_build.judge({"torch_cuda": ""}, {"torch_cuda": "12.9"}) == [
        "torch_cuda is a build without CUDA, expected 12.9"
    ]
    assert _engine_build.judge({"vllm": "0.25.1+cu129"}, {"vllm": "0.25.1", "nccl": ""}) == []
    assert _engine_build.judge({"vllm": "0.25.1"}, {"vllm": "0.25.1+cu129"}) == []
    assert _engine_build.judge({"vllm": "0.25.1+cu130"}, {"vllm": "0.25.1+cu129"}) == [
        "vllm is 0.25.1+cu130, expected 0.25.1+cu129"
    ]


def test_programs_are_looked_for_where_a_unit_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C43: a login shell would find it."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "ninja-of-the-shell").write_text("#!/bin/sh\n")
    (tmp_path / "ninja-of-the-shell").chmod(0o755)
    with pytest.raises(_engine_build.BuildError, match="ninja-of-the-shell not found in the units' PATH") as error:
        build(tmp_path / "root", programs=["ninja-of-the-shell", "sh"])
    assert "sh," not in str(error.value)


def test_a_wheel_that_does_not_have_its_hash_is_not_installed(tmp_path: Path) -> None:
    house = wheelhouse(tmp_path / "wheelhouse" / NAME)
    makers.wheel(house, "ray", "2.56.0", {"ray/__init__.py": "import os  # something else under the same name\n"})
    with pytest.raises(_engine_build.BuildError, match=r"(?i)hash"):
        _engine_build.build(tmp_path, NAME, house, sys.executable, EXPECTED, [], [], {}, 60)


def test_too_little_disk_is_an_error_before_anything_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_engine_build, "SPARE_BYTES", 1 << 60)
    with pytest.raises(_engine_build.BuildError, match="GB free, the environment needs"):
        build(tmp_path)
    assert not (tmp_path / "releases" / NAME).exists()


def test_killed_at_any_time_the_next_build_ends_right(tmp_path: Path) -> None:
    """C48: the whole group of processes is killed, as when the power goes."""
    wheelhouse(tmp_path / "wheelhouse" / NAME)
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_build as b\n"
        f"b.build(Path(sys.argv[1]), '{NAME}', Path(sys.argv[1], 'wheelhouse', '{NAME}'), sys.executable, "
        "{}, ['ray'], [], {}, 60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'collections'}:{ROOT}"}
    unfinished = 0
    for pause in (0.1, 0.3, 0.5, 0.7, 0.9, 1.1):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], env=environment, start_new_session=True
        )
        time.sleep(pause)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        unfinished += _release.complete(tmp_path) == []
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment, check=True)
    release = tmp_path / "releases" / NAME
    assert _manifest.compare(release, _manifest.load(release / _manifest.NAME), deep=True) == []
    assert unfinished


def test_who_comes_second_waits_and_finds_the_work_done(tmp_path: Path) -> None:
    wheelhouse(tmp_path / "wheelhouse" / NAME)
    with _release.exclusive(tmp_path, NAME, 5), pytest.raises(_release.BusyError, match="more than 1 s"):
        _engine_build.build(tmp_path, NAME, tmp_path / "wheelhouse" / NAME, sys.executable, {}, [], [], {}, 1)


def damaged(release: Path) -> list[str]:
    known = _manifest.load(release / _manifest.NAME)
    patched = _engine_state.patched_files(_engine_state.patches_of(release))
    return [item.path for item in _manifest.compare(release, known, patched, deep=True)]


def test_repair_puts_back_what_differs_and_touches_nothing_else(tmp_path: Path) -> None:
    release = built(tmp_path, NAME)
    stat = (release / SITE / "torch/lib/libtorch.so").stat()
    content = bytearray((release / SITE / "torch/lib/libtorch.so").read_bytes())
    content[7] ^= 1
    (release / SITE / "torch/lib/libtorch.so").write_bytes(content)
    os.utime(release / SITE / "torch/lib/libtorch.so", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (release / SITE / "ray/core.py").unlink()
    (release / SITE / "extra.pth").write_text("import os\n")
    compiled = next((release / SITE / "vllm/__pycache__").glob("cli.*.pyc"))
    compiled.write_bytes(b"nonsense")
    (release / "bin/python").unlink()
    wrong = damaged(release)
    assert len(wrong) == 5
    others = {path: path.stat().st_ino for path in release.rglob("*") if path.is_file() and not path.is_symlink()}
    house = tmp_path / "wheelhouse" / NAME
    found = _engine_repair.repair(tmp_path, NAME, house, True, [], 5, False)
    assert sorted(item.path for item in found) == sorted(wrong)
    assert damaged(release) == []
    moved = {
        str(path.relative_to(release))
        for path, inode in others.items()
        if path.exists() and path.stat().st_ino != inode
    }
    assert moved <= {*wrong, _manifest.NAME}
    assert _engine_repair.repair(tmp_path, NAME, house, True, [], 5, False) == []
    done = subprocess.run([f"{release}/bin/vllm"], capture_output=True, text=True, check=True)
    assert done.stdout == "0.25.1+cpu\n"


def test_repair_in_check_mode_only_says_it(tmp_path: Path) -> None:
    release = built(tmp_path, NAME)
    (release / SITE / "ray/core.py").write_text("edited\n")
    found = _engine_repair.repair(tmp_path, NAME, tmp_path / "wheelhouse" / NAME, False, [], 5, True)
    assert [item.path for item in found] == [f"{SITE}/ray/core.py"]
    assert (release / SITE / "ray/core.py").read_text() == "edited\n"


def test_a_patched_file_comes_back_as_shipped_and_is_to_be_patched_again(tmp_path: Path) -> None:
    release = built(tmp_path, NAME)
    path = f"{SITE}/vllm/models/laguna.py"
    record = {"verdict": "present", "patch_sha256": "x", "file": path, "after_sha256": "0" * 64}
    (release / "patches").mkdir()
    (release / "patches/laguna.json").write_text(json.dumps(record))
    (release / path).write_text("half patched\n")
    _engine_repair.repair(tmp_path, NAME, tmp_path / "wheelhouse" / NAME, False, [path], 5, False)
    assert (release / path).read_text() == FILES["vllm"]["vllm/models/laguna.py"]
    assert _engine_state.patches_of(release) == {}


@pytest.mark.parametrize("path", ["pyvenv.cfg", "bin/vllm", f"{SITE}/ray-2.56.0.dist-info/RECORD"])
def test_what_no_wheel_holds_comes_back_too(tmp_path: Path, path: str) -> None:
    release = built(tmp_path, NAME)
    before, mode = (release / path).read_bytes(), (release / path).stat().st_mode
    (release / path).write_text("other\n")
    _engine_repair.repair(tmp_path, NAME, tmp_path / "wheelhouse" / NAME, False, [], 5, False)
    assert ((release / path).read_bytes(), (release / path).stat().st_mode) == (before, mode)


def test_what_nothing_gives_back_is_named(tmp_path: Path) -> None:
    release = built(tmp_path, NAME)
    (release / "generated.zip").unlink()
    (release / "pyvenv.cfg").write_text("other\n")
    with pytest.raises(_engine_build.BuildError, match=r"no wheel gives back pyvenv\.cfg"):
        _engine_repair.repair(tmp_path, NAME, tmp_path / "wheelhouse" / NAME, False, [], 5, False)
