# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests of real environments: made by uv from wheels, then damaged."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _manifest as manifest

from tests.unit.plugins.engine_releases import SITE, built


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("whole"), "a" * 16)


def rewrite(path: Path, content: bytes) -> None:
    """Other bytes under the same time: only a deep look can see it."""
    stat = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def flip(release: Path) -> str:
    path = release / SITE / "torch/lib/libtorch.so"
    content = bytearray(path.read_bytes())
    content[12345] ^= 1
    rewrite(path, bytes(content))
    return f"{SITE}/torch/lib/libtorch.so"


def edit(release: Path) -> str:
    (release / SITE / "ray/core.py").write_text("edited\n")
    return f"{SITE}/ray/core.py"


def delete(release: Path) -> str:
    (release / SITE / "vllm/cli.py").unlink()
    return f"{SITE}/vllm/cli.py"


def add(release: Path) -> str:
    (release / SITE / "sitecustomize.py").write_text("import os\n")
    return f"{SITE}/sitecustomize.py"


def relink(release: Path) -> str:
    link = release / "bin/python"
    link.unlink()
    link.symlink_to("/usr/bin/false")
    return "bin/python"


def bytecode(release: Path) -> str:
    path = next((release / SITE / "ray/__pycache__").glob("core.*.pyc"))
    content = path.read_bytes()
    rewrite(path, content[:-1] + bytes([content[-1] ^ 1]))
    return str(path.relative_to(release))


@pytest.mark.parametrize(
    ("damage", "package", "problem", "quick"),
    [
        (flip, "torch", "changed", False),
        (edit, "ray", "changed", True),
        (delete, "vllm", "missing", True),
        (add, "", "unlisted", True),
        (relink, "", "changed", True),
        (bytecode, "ray", "changed", False),
    ],
)
def test_names_package_and_file(
    tmp_path: Path, damage: Callable[[Path], str], package: str, problem: str, quick: bool
) -> None:
    release = built(tmp_path, "b" * 16)
    known = manifest.load(release / manifest.NAME)
    path = damage(release)
    found = manifest.compare(release, known, deep=True)
    assert [(item.path, item.package, item.problem) for item in found] == [(path, package, problem)]
    assert bool(manifest.compare(release, known)) is quick
    if problem == "changed":
        assert manifest.compare(release, known, only=[path]) == found
        assert manifest.compare(release, known, only=["bin/vllm"]) == []


def test_a_whole_environment_has_no_difference(whole: Path) -> None:
    known = manifest.load(whole / manifest.NAME)
    assert manifest.compare(whole, known) == manifest.compare(whole, known, deep=True) == []
    assert manifest.broken_records(whole, known) == []


def test_only_the_time_of_a_file_is_no_difference(whole: Path) -> None:
    os.utime(whole / SITE / "vllm/cli.py")
    known = manifest.load(whole / manifest.NAME)
    assert manifest.compare(whole, known) == []


def test_every_file_has_its_package(whole: Path) -> None:
    known = manifest.load(whole / manifest.NAME)
    owners = {path: entry[3] for path, entry in known["files"].items()}
    assert owners["bin/vllm"] == "vllm"
    assert owners[f"{SITE}/torch/lib/libtorch.so"] == "torch"
    assert {owner for path, owner in owners.items() if "/ray/__pycache__/" in path} == {"ray"}
    assert owners["pyvenv.cfg"] == ""
    assert known["packages"]["vllm"]["version"] == "0.25.1+cpu"


def test_two_installations_of_the_same_wheels_are_equal(whole: Path, tmp_path: Path) -> None:
    """On another path too: nothing of where it lies is in what is compared."""
    one = manifest.load(whole / manifest.NAME)
    other = manifest.load(built(tmp_path / "elsewhere", "c" * 16) / manifest.NAME)
    assert one["digest"] == other["digest"]
    assert manifest.unequal([("a", one["packages"]), ("b", other["packages"])]) == {}


def test_what_differs_between_nodes_is_named(whole: Path, tmp_path: Path) -> None:
    one = manifest.load(whole / manifest.NAME)["packages"]
    ray = {"ray": {"ray/__init__.py": "", "ray/core.py": "other\n"}}
    other = manifest.load(built(tmp_path, "d" * 16, ray) / manifest.NAME)["packages"]
    table = manifest.unequal([("spark-01", one), ("spark-02", other)])
    assert set(table) == {"ray"}
    assert table["ray"]["spark-01"].startswith("2.56.0 (")
    assert table["ray"]["spark-01"] != table["ray"]["spark-02"]
    lacking = manifest.unequal([("spark-01", one), ("spark-02", {})])
    assert lacking["torch"]["spark-02"] == "absent"


def test_patched_files_are_held_to_their_own_sum(tmp_path: Path) -> None:
    release = built(tmp_path, "e" * 16)
    known = manifest.load(release / manifest.NAME)
    path = f"{SITE}/vllm/models/laguna.py"
    (release / path).write_text("patched\n")
    total = hashlib.sha256(b"patched\n").hexdigest()
    assert manifest.compare(release, known, {path: total}, deep=True) == []
    for compiled in (release / SITE / "vllm/models/__pycache__").iterdir():
        compiled.unlink()
    assert manifest.compare(release, known, {path: total}, deep=True) == []
    rewrite(release / path, b"PATCHED\n")
    (found,) = manifest.compare(release, known, {path: total})
    assert (found.path, found.expected) == (path, total)


def test_all_cores_give_the_same_sums(whole: Path) -> None:
    sizes = {path: item.size for path, item in manifest.scan(whole).items() if not item.link}
    sizes["not/there"] = 1
    one = manifest.hash_files(whole, sizes, workers=1)
    assert one == manifest.hash_files(whole, sizes, workers=3)
    assert one["not/there"] == ""
    content = (whole / "bin/vllm").read_bytes()
    assert one["bin/vllm"] == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("text", ["", "[]", '{"format": 0}', "{"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(ValueError, match=r"manifest|Expecting"):
        manifest.load(tmp_path / "m.json")


def test_hashing_ends_also_where_its_caller_goes_on_after_a_signal(whole: Path) -> None:
    """As a job in the background does, which only makes a note of SIGTERM; workers inherit that."""
    program = (
        "import signal, sys\nfrom pathlib import Path\n"
        "from ansible_collections.dgx_spark.vllm.plugins.module_utils import _manifest\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "root = Path(sys.argv[1])\nsizes = {p: s.size for p, s in _manifest.scan(root).items() if not s.link}\n"
        "for _ in range(20): told = []; _manifest.hash_files(root, sizes, 2, told.append); print(sum(told))\n"
    )
    argv = [sys.executable, "-c", program, str(whole)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    size = sum(item.size for item in manifest.scan(whole).values())
    assert done.stdout.split() == [str(size)] * 20
