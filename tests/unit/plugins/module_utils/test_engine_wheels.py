# SPDX-License-Identifier: GPL-3.0-or-later
"""Wheels from sources: the same bytes always, and wheels that an installer takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_wheels as wheels

from tests.unit.plugins.engine_makers import UV

SOURCES = Path(__file__).resolve().parents[4] / "roles/engine/files/wheels"
NAMES = sorted(path.name for path in SOURCES.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_neither_times_nor_modes_nor_order_of_files_matter(name: str, tmp_path: Path) -> None:
    copy = tmp_path / name
    shutil.copytree(SOURCES / name, copy)
    for number, path in enumerate(sorted(copy.rglob("*"), reverse=True)):
        if path.is_file():
            path.chmod(0o600)
            os.utime(path, (number, number))
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__/x.pyc").write_bytes(b"x")
    assert wheels.build(copy) == wheels.build(SOURCES / name)
    assert wheels.build(copy)[0] == f"{name}-py3-none-any.whl"


@pytest.mark.parametrize("name", NAMES)
def test_an_installer_takes_it(name: str, tmp_path: Path) -> None:
    filename, content = wheels.build(SOURCES / name)
    (tmp_path / filename).write_bytes(content)
    with zipfile.ZipFile(tmp_path / filename) as archive:
        assert archive.testzip() is None
    argv = [
        str(UV),
        "pip",
        "install",
        "--no-config",
        "--offline",
        "--python",
        sys.executable,
        "--no-deps",
        "--no-cache",
    ]
    done = subprocess.run(
        [*argv, "--target", str(tmp_path / "site"), str(tmp_path / filename)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / f"{name}.dist-info/METADATA").exists()


def test_entry_points_name_functions_that_are_there() -> None:
    source = SOURCES / "dgx_spark_vllm_cpu-0.1.0"
    text = (source / "dgx_spark_vllm_cpu-0.1.0.dist-info/entry_points.txt").read_text()
    targets = [line.partition(" = ")[2] for line in text.splitlines() if " = " in line]
    assert len(targets) == 4
    for target in targets:
        module, _, function = target.partition(":")
        path = source / module.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        assert f"def {function}()" in file.read_text()


def test_a_folder_without_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="METADATA is missing"):
        wheels.build(tmp_path)
