# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks: read, merged over targets, compared, and the shipped ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_lock as lock
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_resolve, _engine_wheels
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_tags import Target

from tests.unit.plugins.engine_makers import pylock

ROLE = Path(__file__).resolve().parents[4] / "roles/engine"
VARIANTS = yaml.safe_load((ROLE / "vars/main.yml").read_text())["engine_variants_known"]
SHIPPED = sorted((ROLE / "files/locks").glob("pylock.*.toml"))
SPARK, BED = Target("3.12", "aarch64"), Target("3.13", "x86_64", (2, 41))


def wheel(filename: str, url: str = "http://i/") -> lock.Wheel:
    name, version = filename.split("-")[:2]
    return lock.Wheel(name, version, filename, url and url + filename, 10, f"{hash(filename) & (2**256 - 1):064x}")


ARM = wheel("pkg-1.0-cp312-cp312-manylinux_2_28_aarch64.whl")
X86 = wheel("pkg-1.0-cp313-cp313-manylinux_2_28_x86_64.whl")
PURE = wheel("pure-2.0-py3-none-any.whl")
ONLY = wheel("intel-3.0-py3-none-manylinux1_x86_64.whl")


def merged(tool: dict[str, str] | None = None) -> bytes:
    parts = [(SPARK, pylock([ARM, PURE]).encode()), (BED, pylock([X86, PURE, ONLY]).encode())]
    return lock.merge(parts, [wheel("shim-1+cpu-py3-none-any.whl", "")], tool or {"variant": "t"})


def test_one_lock_serves_all_its_targets() -> None:
    read = lock.parse(merged())
    assert [item.filename for item in lock.select(read, SPARK)] == [
        ARM.filename, PURE.filename, "shim-1+cpu-py3-none-any.whl"
    ]  # fmt: skip
    assert [item.package for item in lock.select(read, BED)] == ["intel", "pkg", "pure", "shim"]
    assert merged() == merged()


def test_what_is_installed_is_said_by_version_and_hash() -> None:
    text = lock.requirements(lock.select(lock.parse(merged()), SPARK))
    assert text.splitlines()[0] == f"pkg==1.0 --hash=sha256:{ARM.sha256}"


def test_a_target_that_the_lock_was_not_made_for_is_refused() -> None:
    with pytest.raises(lock.LockError, match=r"this node has Python 3\.14 on aarch64") as error:
        lock.select(lock.parse(merged()), Target("3.14", "aarch64"), "pylock.x.toml")
    assert "playbooks/lock.yml" in str(error.value)


def test_a_missing_wheel_is_an_error_and_never_an_older_version() -> None:
    """C41: everything that lacks a wheel is named at once, with what there is instead."""
    read = lock.parse(pylock([X86, ONLY, PURE]).encode())
    with pytest.raises(lock.LockError) as error:
        lock.select(read, SPARK)
    assert f"intel 3.0 (has {ONLY.filename})" in str(error.value)
    assert f"pkg 1.0 (has {X86.filename})" in str(error.value)
    assert "pure" not in str(error.value)


def test_two_versions_of_a_package_do_not_make_one_lock() -> None:
    other = wheel("pkg-1.1-cp313-cp313-manylinux_2_28_x86_64.whl")
    with pytest.raises(lock.LockError, match=r"pkg: 1\.0 and 1\.1"):
        lock.merge([(SPARK, pylock([ARM]).encode()), (BED, pylock([other]).encode())], [], {})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[", "not TOML"),
        ("a = 1", "lock-version is 'none'"),
        ('lock-version = "2.0"', "lock-version is '2.0'"),
        ('lock-version = "1.0"\n[[packages]]\nname = "a"\nversion = "1"\n', "no wheel"),
        (pylock([PURE]).replace(PURE.sha256, ""), "no sha256 for pure-2.0"),
    ],
)
def test_a_bad_lock_says_what_is_wrong(text: str, named: str) -> None:
    with pytest.raises(lock.LockError) as error:
        lock.parse(text.encode(), "pylock.x.toml")
    assert named in str(error.value)
    assert "pylock.x.toml" in str(error.value)


def test_a_release_is_named_after_lock_variant_and_python() -> None:
    names = {lock.release_id(a, b, c) for a in ("1", "2") for b in ("cpu", "cu130") for c in ("3.12", "3.13")}
    assert len(names) == 8
    assert lock.release_id("1", "cpu", "3.12") == lock.release_id("1", "cpu", "3.12")
    assert all(len(name) == 16 for name in names)


def test_another_nccl_replaces_one_line(tmp_path: Path) -> None:
    base, over = tmp_path / "base", tmp_path / "over"
    base.write_bytes(merged())
    other = wheel("pkg-2.0-cp312-cp312-manylinux_2_28_aarch64.whl")
    over.write_bytes(lock.merge([(SPARK, pylock([other]).encode())], [], {}))
    both = lock.read([base, over])
    assert lock.difference(lock.read([base]), both) == ["~ pkg 1.0 -> 2.0"]
    assert both.sha256 != lock.read([base]).sha256
    over.write_bytes(lock.merge([(SPARK, pylock([wheel("new-1-py3-none-any.whl")]).encode())], [], {}))
    with pytest.raises(lock.LockError, match="replaces new, which base does not have"):
        lock.read([base, over])


def test_the_difference_is_said_package_by_package() -> None:
    old = lock.parse(pylock([ARM, PURE, ONLY]).encode())
    changed = PURE._replace(sha256="0" * 64)
    new = lock.parse(pylock([ARM._replace(version="1.1"), changed, wheel("added-1-py3-none-any.whl")]).encode())
    assert lock.difference(old, new) == [
        "+ added 1", "- intel 3.0", "~ pkg 1.0 -> 1.1", "! pure 2.0: other wheels under the same version"
    ]  # fmt: skip
    assert lock.difference(new, new) == []
    assert len(lock.difference(None, new)) == 3


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_locks_serve_their_targets(path: Path) -> None:
    read = lock.parse(path.read_bytes(), path.name)
    assert read.environments
    variant = VARIANTS.get(read.tool["variant"], {})
    for marker in read.environments:
        arch, python = marker.split("'")[1], marker.split("'")[3]
        wheels = lock.select(read, Target(python, arch), path.name)
        assert all(item.url.startswith("https://files.pythonhosted.org/") or not item.url for item in wheels)
        assert all(item.size for item in wheels)
    wanted = {target.marker for target in _engine_resolve.parse_targets(variant.get("targets", []))}
    assert wanted <= set(read.environments)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_the_table_of_variants_is_whole(variant: str) -> None:
    row = VARIANTS[variant]
    assert set(row["architectures"]) <= {"aarch64", "x86_64"}
    assert {"requirements", "overrides", "indexes", "exclude_newer", "local_wheels", "driver_min", "toolkit_min",
            "torch_cuda", "libraries", "imports", "programs", "validated", "nccl",
            "nccl_package"} <= set(row)  # fmt: skip
    assert any(item.startswith("ray") for item in row["requirements"])
    path = ROLE / f"files/locks/pylock.{variant}.toml"
    if path.exists():
        packages = lock.parse(path.read_bytes()).packages
        assert packages["vllm"]["version"].startswith(row["validated"])
        assert packages[row["nccl_package"]]["version"] == row["nccl"]
        for item in row["requirements"]:
            name, _, version = item.partition("==")
            assert packages[name.partition("[")[0]]["version"] == version


def test_small_wheels_are_the_same_bytes_as_the_lock_says() -> None:
    packages = lock.parse((ROLE / "files/locks/pylock.cpu.toml").read_bytes()).packages
    for name in VARIANTS["cpu"]["local_wheels"]:
        made = _engine_wheels.describe(ROLE / "files/wheels" / name)
        (locked,) = packages[made.package]["wheels"]
        assert (locked["sha256"], locked["size"]) == (made.sha256, made.size), f"{name}: renew the lock of cpu"
