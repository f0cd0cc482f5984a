# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolving by the real uv against indexes on this machine, as vLLM's and PyTorch's are: no hashes and no dates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_lock, _engine_resolve
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_build import BuildError
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_tags import Target

from tests.unit.plugins.engine_makers import PYTHON, UV, Index, page, serve, wheel

TARGET = Target(PYTHON, "aarch64", _engine_resolve.GLIBC)
OTHER = Target(PYTHON, "x86_64", _engine_resolve.GLIBC)


def put(
    www: Path, index: str, name: str, version: str, tag: str = "py3-none-any", requires: tuple[str, ...] = ()
) -> None:
    """A wheel on an index."""
    files = www / index / "files"
    path = wheel(files, name, version, {f"{name}/__init__.py": ""}, requires)
    path = path.rename(path.with_name(f"{name}-{version}-{tag}.whl"))
    links = sorted(files.glob(f"{name}-*.whl"))
    page(www / index, name, [f"/{index}/files/{item.name.replace('+', '%2B')}" for item in links])


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    www = tmp_path / "www"
    for arch in ("aarch64", "x86_64"):
        tag = f"cp3{PYTHON.split('.')[1]}-cp3{PYTHON.split('.')[1]}-manylinux_2_28_{arch}"
        put(www, "vllm", "vllm", "0.25.1+cu129", tag, ("torch==2.11.0", "torchcodec>=0.14", "certifi"))
        put(www, "torch", "torch", "2.11.0+cu129", tag)
        put(www, "pypi", "torch", "2.11.0", tag)
        put(www, "torch", "torchcodec", "0.15.0", tag)
    # What the torch index carries of common packages is old.
    put(www, "torch", "certifi", "2022.1.1")
    put(www, "pypi", "certifi", "2026.1.1")
    with serve(www) as server:
        yield server


def row(index: Index, **changes: Any) -> dict[str, Any]:
    own = {
        "requirements": ["vllm==0.25.1+cu129", "torch==2.11.0+cu129"],
        "indexes": [f"{index.url}/vllm", f"{index.url}/torch"],
    }
    return {**own, **changes}


def resolve(index: Index, tmp_path: Path, targets: tuple[Target, ...] = (TARGET,), **changes: Any) -> _engine_lock.Lock:
    content = _engine_resolve.resolve(
        UV, row(index, **changes), targets, f"{index.url}/pypi", tmp_path / "cache", [], {"variant": "cu129"}
    )
    return _engine_lock.parse(content)


def test_hashes_and_sizes_are_there_although_no_index_says_them(index: Index, tmp_path: Path) -> None:
    lock = resolve(index, tmp_path)
    versions = {name: entry["version"] for name, entry in lock.packages.items()}
    assert versions == {"vllm": "0.25.1+cu129", "torch": "2.11.0+cu129", "torchcodec": "0.15.0", "certifi": "2026.1.1"}
    for wheel_ in _engine_lock.select(lock, TARGET):
        path = tmp_path / "www" / wheel_.url.removeprefix(f"{index.url}/").replace("%2B", "+")
        assert wheel_.size == path.stat().st_size
        assert len(wheel_.sha256) == 64
    assert lock.tool == {"variant": "cu129", "vllm": "0.25.1"}


def test_a_package_with_an_index_of_its_own_comes_from_there_and_nothing_else_does(
    index: Index, tmp_path: Path
) -> None:
    """As the row of cu129 says it: no name that both have is taken from the wrong one, however new it is there."""
    www, tag = tmp_path / "www", f"cp3{PYTHON.split('.')[1]}-cp3{PYTHON.split('.')[1]}-manylinux_2_28_aarch64"
    put(www, "torch", "certifi", "2099.1.1")
    put(www, "vllm", "certifi", "2099.1.1")
    put(www, "torch", "vllm", "0.25.1+cu129", tag, ("certifi<1",))
    put(www, "pypi", "vllm", "0.25.1", tag)
    put(www, "pypi", "torchcodec", "9.0.0", tag)
    put(www, "torch", "torchvision", "0.26.0", tag, ("torch==2.11.0",))
    put(www, "pypi", "torchvision", "0.26.0", tag, ("torch==2.11.0", "certifi<1"))
    torch, vllm = f"{index.url}/torch", f"{index.url}/vllm"
    sources = {"vllm": vllm, "torch": torch, "torchvision": torch, "torchcodec": torch}
    wanted = ["vllm==0.25.1+cu129", "torch==2.11.0+cu129", "torchvision==0.26.0", "torchcodec>=0.14"]
    lock = resolve(index, tmp_path, requirements=wanted, indexes=[], sources=sources)
    versions = {name: entry["version"] for name, entry in lock.packages.items()}
    assert versions == {
        "vllm": "0.25.1+cu129", "torch": "2.11.0+cu129", "torchvision": "0.26.0", "torchcodec": "0.15.0",
        "certifi": "2026.1.1",
    }  # fmt: skip
    for item in _engine_lock.select(lock, TARGET):
        assert item.url.startswith(f"{sources.get(item.package, index.url + '/pypi')}/files/"), item
        assert "x86_64" not in item.filename
    # What such an index lacks is an error, also where another index has it.
    (www / "torch/torchcodec/index.html").unlink()
    with pytest.raises(BuildError, match="torchcodec"):
        resolve(index, tmp_path, requirements=wanted, indexes=[], sources=sources)


def test_two_targets_make_one_lock(index: Index, tmp_path: Path) -> None:
    lock = resolve(index, tmp_path, (TARGET, OTHER))
    one = [item.filename for item in _engine_lock.select(lock, TARGET)]
    two = [item.filename for item in _engine_lock.select(lock, OTHER)]
    assert sum("aarch64" in name for name in one) == sum("x86_64" in name for name in two) == 3


def test_the_same_again(index: Index, tmp_path: Path) -> None:
    assert resolve(index, tmp_path) == resolve(index, tmp_path)


def test_a_missing_version_is_an_error_and_never_an_older_one(index: Index, tmp_path: Path) -> None:
    """C41."""
    with pytest.raises(BuildError, match=r"vllm==0\.26\.0"):
        resolve(index, tmp_path, requirements=["vllm==0.26.0+cu129"])


def test_a_missing_architecture_is_an_error(index: Index, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="on riscv64"):
        resolve(index, tmp_path, (Target(PYTHON, "riscv64", _engine_resolve.GLIBC),))


def test_a_package_that_the_index_of_the_variant_lacks_is_named(index: Index, tmp_path: Path) -> None:
    """C45."""
    (tmp_path / "www/torch/torchcodec/index.html").unlink()
    with pytest.raises(BuildError, match="torchcodec"):
        resolve(index, tmp_path)


def test_an_index_that_is_not_reached_is_named(index: Index, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"127\.0\.0\.1:9/gone"):
        resolve(index, tmp_path, indexes=["http://127.0.0.1:9/gone"])


def test_settings_of_the_user_have_no_influence(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C47."""
    plain = resolve(index, tmp_path)
    home = tmp_path / "home"
    (home / ".config/uv").mkdir(parents=True)
    (home / ".config/uv/uv.toml").write_text('[pip]\nresolution = "lowest"\nindex-url = "http://127.0.0.1:9"\n')
    for key, value in {
        "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "UV_INDEX_URL": "http://127.0.0.1:9",
        "UV_EXTRA_INDEX_URL": "http://127.0.0.1:9", "UV_RESOLUTION": "lowest", "UV_OVERRIDE": "/nonexistent",
        "UV_EXCLUDE_NEWER": "2001-01-01", "PIP_INDEX_URL": "http://127.0.0.1:9", "UV_PRERELEASE": "allow",
    }.items():  # fmt: skip
        monkeypatch.setenv(key, value)
    assert resolve(index, tmp_path / "again", requirements=row(index)["requirements"]) == plain


def test_another_nccl_is_that_package_alone(index: Index, tmp_path: Path) -> None:
    put(tmp_path / "www", "pypi", "nvidia-nccl-cu12".replace("-", "_"), "2.30.7", requires=("certifi",))
    (tmp_path / "www/pypi/nvidia_nccl_cu12").rename(tmp_path / "www/pypi/nvidia-nccl-cu12")
    own = _engine_resolve.nccl_row({"nccl_package": "nvidia-nccl-cu12", "indexes": []}, "2.30.7")
    content = _engine_resolve.resolve(UV, own, [TARGET], f"{index.url}/pypi", tmp_path / "c", [], {"nccl": "2.30.7"})
    lock = _engine_lock.parse(content)
    assert {name: entry["version"] for name, entry in lock.packages.items()} == {"nvidia-nccl-cu12": "2.30.7"}
    assert lock.tool == {"nccl": "2.30.7"}


def test_dates_are_asked_for_only_where_an_index_gives_them() -> None:
    files = {"project": Path("p"), "output": Path("o")}
    plain = _engine_resolve.arguments({"exclude_newer": "2026-07-20"}, TARGET, "https://i", files)
    assert plain[plain.index("--exclude-newer") + 1] == "2026-07-20"
    assert "--index-strategy" not in plain
    mixed = {"exclude_newer": "2026-07-20", "undated": ["torch"], "indexes": ["https://t"]}
    argv = _engine_resolve.arguments(mixed, TARGET, "https://i", files)
    assert argv[argv.index("--exclude-newer-package") + 1] == "torch=false"
    assert argv[argv.index("--index-strategy") + 1] == "unsafe-best-match"
    assert argv[argv.index("--python-platform") + 1] == "aarch64-manylinux_2_39"
    own = _engine_resolve.arguments(
        {"exclude_newer": "2026-07-20", "sources": {"vllm": "https://v"}}, TARGET, "i", files
    )
    assert own[own.index("--exclude-newer-package") + 1] == "vllm=false"
    assert "--index-strategy" not in own
