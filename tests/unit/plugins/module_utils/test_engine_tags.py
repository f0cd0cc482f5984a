# SPDX-License-Identifier: GPL-3.0-or-later
"""Which wheel fits which machine."""

from __future__ import annotations

import random

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_tags import (
    Target,
    best,
    fit,
    normalize,
    parse_wheel_name,
)
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

SPARK = Target("3.12", "aarch64", (2, 39))
DEBIAN = Target("3.13", "x86_64", (2, 41))
NAMES = [
    "numpy-2.3.5-cp312-cp312-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
    "numpy-2.3.5-cp313-cp313-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
    "numpy-2.3.5-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    "numpy-2.3.5-cp313-cp313-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    "numpy-2.3.5-cp313-cp313t-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    "numpy-2.3.5-cp313-cp313-musllinux_1_2_x86_64.whl",
    "numpy-2.3.5-cp312-cp312-macosx_11_0_arm64.whl",
]


@pytest.mark.parametrize(
    ("target", "chosen"), [(SPARK, NAMES[0]), (Target("3.13", "aarch64"), NAMES[1]), (DEBIAN, NAMES[3])]
)
def test_the_wheel_for_this_interpreter_and_machine(target: Target, chosen: str) -> None:
    names = list(NAMES)
    random.Random(4).shuffle(names)
    assert best(names, target) == chosen


@pytest.mark.parametrize(
    ("name", "target", "fits"),
    [
        ("a-1-py3-none-any.whl", SPARK, True),
        ("a-1-py2.py3-none-any.whl", SPARK, True),
        ("a-1-py37-none-any.whl", SPARK, True),
        ("a-1-py314-none-any.whl", SPARK, False),
        ("a-1-py2-none-any.whl", SPARK, False),
        ("a-1-cp38-abi3-manylinux_2_28_aarch64.whl", SPARK, True),
        ("a-1-cp313-abi3-manylinux_2_28_aarch64.whl", SPARK, False),
        ("a-1-cp311-cp311-manylinux_2_28_aarch64.whl", SPARK, False),
        ("a-1-cp312-cp312-manylinux_2_40_aarch64.whl", SPARK, False),
        ("a-1-cp312-cp312-manylinux2014_aarch64.whl", SPARK, True),
        ("a-1-cp312-cp312-linux_aarch64.whl", SPARK, True),
        ("a-1-1build2-cp312-cp312-manylinux2014_aarch64.whl", SPARK, True),
        ("a-1-cp312-cp312-win_amd64.whl", DEBIAN, False),
        ("a-1-py3-none-manylinux1_x86_64.whl", DEBIAN, True),
    ],
)
def test_fit(name: str, target: Target, fits: bool) -> None:
    assert (fit(name, target) is not None) is fits


def test_the_same_answer_as_packaging_gives() -> None:
    """Every combination of tags that wheels of the lock could carry, judged by the library that pip uses."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(41, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    tags = {*cpython_tags((3, 13), platforms=platforms), *compatible_tags((3, 13), "cp313", platforms)}
    for python in ("cp38", "cp312", "cp313", "cp314", "py2", "py3", "py2.py3", "py37", "py313"):
        for abi in ("none", "abi3", "cp313", "cp312", "cp313t"):
            for platform in ("any", "manylinux_2_28_x86_64", "manylinux_2_42_x86_64", "manylinux2014_aarch64",
                             "manylinux1_x86_64", "win_amd64", "musllinux_1_2_x86_64"):  # fmt: skip
                name = f"a-1-{python}-{abi}-{platform}.whl"
                known = bool(parse_wheel_filename(name)[3] & tags)
                assert (fit(name, DEBIAN) is not None) is known, name


@pytest.mark.parametrize("name", ["a-1.tar.gz", "a-1-py3-none.whl", "a.whl", ""])
def test_what_is_no_wheel_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a wheel"):
        parse_wheel_name(name)


def test_names_are_compared_in_one_spelling() -> None:
    assert normalize("Foo__Bar.baz") == normalize("foo-bar-BAZ") == "foo-bar-baz"
    assert parse_wheel_name("Foo_Bar-1.0+cpu-py3-none-any.whl")[:2] == ("foo-bar", "1.0+cpu")
