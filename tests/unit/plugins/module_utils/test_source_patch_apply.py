# SPDX-License-Identifier: GPL-3.0-or-later
"""What a patch does to a file on a disk, and what is left when something goes wrong in the middle."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _source_patch as sp
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _source_patch_apply as spa

from tests.unit.plugins import engine_makers as makers
from tests.unit.plugins.module_utils.test_source_patch import BUNDLED, ORIGINAL, RESULT, known, patch, total

LAGUNA = """
class DFlashLagunaModel:
    def load_weights(self, weights):
        loaded_params = set()
        for name, loaded_weight in weights:
            if self.quant_config is not None and (
                scale_name := self.quant_config.get_cache_scale(name)
            ):
                loaded_params.add(scale_name)
                continue
            loaded_params.add(name)
        return loaded_params
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "m.py"
    path.write_text(ORIGINAL)
    path.chmod(0o640)
    return path


def run(
    item: sp.Patch, path: Path, state: str = "present", check: bool = False, keep: Path | None = None
) -> spa.Outcome:
    return spa.apply(item, path, state, keep, [], check)


def test_applies_once_and_then_finds_it_there(source: Path) -> None:
    assert run(patch(), source)[:2] == (True, "applied")
    assert source.read_text() == RESULT
    assert source.stat().st_mode & 0o777 == 0o640
    stamp = source.stat()
    assert run(patch(), source)[:2] == (False, "present")
    assert (source.stat().st_ino, source.stat().st_mtime_ns) == (stamp.st_ino, stamp.st_mtime_ns)
    assert list(source.parent.iterdir()) == [source]


def test_check_mode_says_the_same_and_writes_nothing(source: Path) -> None:
    outcome = run(patch(), source, check=True)
    assert outcome[:2] == (True, "applied")
    assert source.read_text() == ORIGINAL
    assert "-    call()" in spa.diff(source, outcome)["prepared"]
    run(patch(), source)
    assert spa.diff(source, run(patch(), source)) == {}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_owner_is_kept(source: Path) -> None:
    os.chown(source, 12345, 23456)
    run(patch(), source)
    assert (source.stat().st_uid, source.stat().st_gid) == (12345, 23456)


def test_another_name_of_the_same_bytes_is_left_alone(source: Path) -> None:
    """A hard link shares its bytes, such as with an installer's cache: writing in place would poison it."""
    other = source.with_name("cache.py")
    os.link(source, other)
    run(patch(), source)
    assert other.read_text() == ORIGINAL


def test_a_link_is_followed_and_stays_a_link(source: Path) -> None:
    link = source.with_name("link.py")
    link.symlink_to(source)
    run(patch(), link)
    assert link.is_symlink()
    assert source.read_text() == RESULT


def test_stale_bytecode_goes(source: Path) -> None:
    compiled = Path(
        py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH) or ""
    )
    assert compiled.exists()
    run(patch(), source)
    assert not compiled.exists()


def test_the_result_must_be_python(source: Path) -> None:
    text = 'summary="s"\nreason="r"\nfile="m.py"\npresent="guarded("\n'
    text += '[[edit]]\nanchor="call()"\nreplacement="guarded("\n'
    broken = sp.parse("broken", (text + known(after=ORIGINAL.replace("call()", "guarded("))).encode())
    with pytest.raises(sp.PatchError, match="not Python"):
        run(broken, source)
    assert source.read_text() == ORIGINAL


def test_the_original_bytes_are_back_when_the_check_fails(source: Path) -> None:
    """C52."""
    compiled = Path(py_compile.compile(str(source)) or "")
    stamp = source.stat()
    item = patch("check = 'import sys; sys.exit(\"no good\")'\n")
    with pytest.raises(sp.PatchError, match="no good"):
        run(item, source)
    assert source.read_text() == ORIGINAL
    assert (source.stat().st_mode, source.stat().st_mtime_ns) == (stamp.st_mode, stamp.st_mtime_ns)
    assert not compiled.exists()
    assert not list(source.parent.glob(".*"))


def test_the_check_gets_the_file_and_nothing_of_the_users_environment(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nonexistent/of/the/user")
    check = (
        "import sys; assert not any('user' in item for item in sys.path); assert 'guarded' in open(sys.argv[1]).read()"
    )
    assert run(patch(f'check = "{check}"\n'), source).verdict == "applied"


def test_a_file_that_is_there_already_is_judged_too(source: Path) -> None:
    """C50: validated, not written."""
    source.write_text(RESULT)
    assert run(patch("check = 'pass'\n"), source)[:2] == (False, "present")
    with pytest.raises(sp.PatchError, match="failed"):
        run(patch("check = '1/0'\n"), source)
    assert source.read_text() == RESULT


def test_what_was_decided_is_kept_with_the_release(tmp_path: Path) -> None:
    release = tmp_path / "release"
    path = release / "lib/python3.12/site-packages/pkg/m.py"
    path.parent.mkdir(parents=True)
    path.write_text(ORIGINAL)
    keep = release / "patches"
    assert run(patch(), path, keep=keep).changed
    record = json.loads((keep / "p.json").read_text())
    assert record["file"] == "lib/python3.12/site-packages/pkg/m.py"
    assert (record["before_sha256"], record["after_sha256"]) == (total(ORIGINAL), total(RESULT))
    assert (keep / "p.orig").read_text() == ORIGINAL
    assert not run(patch(), path, keep=keep).changed
    assert json.loads((keep / "p.json").read_text()) == record
    assert spa.locate(release, "pkg", "m.py") == path
    assert run(patch(), path, "absent", keep=keep)[:2] == (True, "restored")
    assert path.read_text() == ORIGINAL
    assert list(keep.iterdir()) == []
    assert not run(patch(), path, "absent", keep=keep).changed


def test_two_patches_of_one_file_know_of_each_other(tmp_path: Path) -> None:
    """In either order, again, and one taken back under the other: no record says what the file is not."""
    site = tmp_path / "lib/python3.12/site-packages"
    both = "# head\n" + ORIGINAL
    wheel = makers.wheel(tmp_path, "pkg", "1", {"pkg/m.py": both})
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(site)], check=True)
    path, keep = site / "pkg/m.py", tmp_path / "patches"
    second = sp.parse(
        "a",
        b'summary = "s"\nreason = "r"\nfile = "m.py"\npresent = "# top"\n'
        b'[[edit]]\nanchor = "# head"\nreplacement = "# top"\n' + known(both, both.replace("head", "top")).encode(),
    )
    for first, other in ((patch(), second), (second, patch())):
        assert run(first, path, keep=keep)[:2] == (True, "applied")
        assert run(other, path, keep=keep)[:2] == (True, "applied")
        assert not run(first, path, keep=keep).changed
        assert not run(other, path, keep=keep).changed
        records = [json.loads(file.read_text()) for file in keep.glob("*.json")]
        assert {entry["after_sha256"] for entry in records} == {total(path.read_text())}
        assert run(first, path, "absent", keep=keep)[:2] == (True, "restored")
        assert json.loads((keep / f"{other.name}.json").read_text())["after_sha256"] == total(path.read_text())
        assert run(other, path, "absent", keep=keep)[:2] == (True, "restored")
        assert path.read_text() == both


def test_a_package_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(sp.PatchError, match=r"vllm/m\.py is 0 times below"):
        spa.locate(tmp_path, "vllm", "m.py")


def test_a_hand_edit_is_seen_through_the_packages_record(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.12/site-packages"
    wheel = makers.wheel(tmp_path, "pkg", "1", {"pkg/m.py": ORIGINAL})
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(site)], check=True)
    path = site / "pkg/m.py"
    assert spa.shipped_sum(path) == total(ORIGINAL)
    path.write_text("# mine\n" + ORIGINAL)
    with pytest.raises(sp.PatchError, match="edited by hand"):
        run(patch(), path)
    assert path.read_text() == "# mine\n" + ORIGINAL


def test_killed_at_any_write_the_file_is_whole_and_the_next_run_ends_right(tmp_path: Path) -> None:
    """The process is killed just before each of its renames and removals in turn."""
    program = """
import os, signal, sys
from pathlib import Path
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _source_patch_apply as spa
from tests.unit.plugins.module_utils.test_source_patch import patch
count, left = 0, int(sys.argv[2])
def step(name, real):
    def call(*a, **k):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return real(*a, **k)
    return call
Path.replace = step("replace", Path.replace)
Path.unlink = step("unlink", Path.unlink)
path = Path(sys.argv[1])
spa.apply(patch(), path, "present", path.parents[4] / "patches", [], False)
"""
    root = Path(__file__).resolve().parents[4]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'collections'}:{root}"}
    killed = 0
    for moment in range(12):
        path = tmp_path / f"r{moment}/lib/python3.12/site-packages/m.py"
        path.parent.mkdir(parents=True)
        path.write_text(ORIGINAL)
        argv = [sys.executable, "-c", program, str(path), str(moment)]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -9), done.stderr
        killed += done.returncode == -9
        assert path.read_text() in (ORIGINAL, RESULT)
        keep = tmp_path / f"r{moment}/patches"
        run(patch(), path, keep=keep)
        assert path.read_text() == RESULT
        assert json.loads((keep / "p.json").read_text())["after_sha256"] == total(RESULT)
        assert run(patch(), path, "absent", keep=keep).after == ORIGINAL.encode()
    assert killed >= 4


def test_the_bundled_patch_lets_a_config_without_the_method_pass(tmp_path: Path) -> None:
    item = sp.parse("laguna", (BUNDLED / "laguna_dflash_get_cache_scale.toml").read_bytes())
    path = tmp_path / "laguna_dflash.py"
    path.write_text(LAGUNA)
    assert run(item, path)[:2] == (True, "applied")
    names: dict[str, type] = {}
    exec(path.read_text(), names)
    model = names["DFlashLagunaModel"]()
    model.quant_config = object()
    assert model.load_weights([("weight", None)]) == {"weight"}
    assert run(item, path)[:2] == (False, "present")
    assert run(item, path, "absent")[:2] == (True, "restored")
    assert path.read_text() == LAGUNA


def test_the_bundled_check_sees_a_guard_that_guards_nothing(tmp_path: Path) -> None:
    item = sp.parse("laguna", (BUNDLED / "laguna_dflash_get_cache_scale.toml").read_bytes())
    path = tmp_path / "laguna_dflash.py"
    guard = 'hasattr(self.quant_config, "get_cache_scale") or True) and (self.quant_config is not None) and (\n'
    path.write_text(LAGUNA.replace("if self.quant_config is not None and (\n", f"if ({guard}"))
    with pytest.raises(sp.PatchError, match="the check of"):
        run(item, path)
