# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Put back what differs from a release's manifest, file by file and out of the wheels; the rest is not touched.

A release that serves can be repaired: every file is written aside and renamed, with the time that the manifest has,
so that compiled bytecode stays valid.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _manifest, _release
from ._engine_build import CHECK_TIMEOUT_S, BuildError, environment
from ._engine_kept import from_generated
from ._engine_state import patched_files, patches_of
from ._manifest import Difference


def wheels_of(wheelhouse: Path) -> dict[str, Path]:
    """The wheel of each package."""
    listing = _release.read_json(wheelhouse / "wheels.json").get("wheels", [])
    return {wheel[0]: wheelhouse / wheel[2] for wheel in listing}


def _from_wheel(wheel: Path, name: str, sha256: str) -> bytes | None:
    """The content of a file of a package, found in its wheel by its end and its sum."""
    with zipfile.ZipFile(wheel) as archive:
        for item in archive.namelist():
            if name.endswith(item) or item.rpartition("/")[2] == name.rpartition("/")[2]:
                content = archive.read(item)
                if hashlib.sha256(content).hexdigest() == sha256:
                    return content
    return None


def _put(path: Path, content: bytes, mtime_ns: int, executable: bool) -> None:
    """Write a file aside and rename it, with the time that it had."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.chmod(0o755 if executable else 0o644)
    os.utime(temporary, ns=(mtime_ns, mtime_ns))
    temporary.replace(path)


def _compile(release: Path, sources: Sequence[str]) -> None:
    """Compile sources again whose bytecode was wrong."""
    program = "import py_compile, sys\nfor name in sys.argv[1:]: py_compile.compile(name, doraise=True)"
    argv = [f"{release}/bin/python", "-I", "-c", program, *[f"{release}/{source}" for source in sources]]
    subprocess.run(argv, env=environment(release), check=True, timeout=CHECK_TIMEOUT_S, capture_output=True)


def repair(
    root: Path, name: str, wheelhouse: Path, deep: bool, paths: Sequence[str], wait_s: int, check_mode: bool
) -> list[Difference]:
    """Repair a release and return what differed. BuildError names the files that no wheel can give back.

    paths: what is known to differ; nothing else is read then.

    Files that a patch had changed come back as the package shipped them; the patch is then applied anew.
    """
    release = _release.releases(root) / name
    with _release.exclusive(root, name, wait_s):
        manifest = _manifest.load(release / _manifest.NAME)
        patches = patches_of(release)
        differences = _manifest.compare(release, manifest, patched_files(patches), deep, only=paths)
        if check_mode or not differences:
            return differences
        _forget_patches(release, patches, {item.path for item in differences})
        lost = _restore(release, manifest, differences, wheels_of(wheelhouse))
        if lost:
            raise BuildError(f"no wheel gives back {', '.join(lost)}; remove {release} and run again to build it anew")
        _release.write_atomic(release / _manifest.NAME, _manifest.dump(manifest))
        again = [item.path for item in differences]
        left = _manifest.compare(release, manifest, patched_files(patches_of(release)), only=again)
        if left:
            raise BuildError(f"still different after the repair: {', '.join(item.path for item in left[:5])}")
        return differences


def _forget_patches(release: Path, patches: Mapping[str, Mapping[str, Any]], paths: set[str]) -> None:
    """Drop the records of patches whose file comes back as shipped: whoever is killed here patches again."""
    for patch, record in patches.items():
        if record.get("file") in paths:
            (release / "patches" / f"{patch}.json").unlink(missing_ok=True)


def _restore(
    release: Path, manifest: dict[str, Any], differences: Sequence[Difference], wheels: Mapping[str, Path]
) -> list[str]:
    """Put every differing file back; returns those that could not be had."""
    lost, stale = [], set()
    for item in differences:
        path, entry = release / item.path, manifest["files"].get(item.path)
        if entry is None:
            path.unlink(missing_ok=True)
        elif _manifest.is_bytecode(item.path):
            path.unlink(missing_ok=True)
            stale.add(_manifest.source_of(item.path))
        elif entry[2].startswith(_manifest.LINK):
            path.unlink(missing_ok=True)
            path.symlink_to(entry[2].removeprefix(_manifest.LINK))
        else:
            content = from_generated(release, item.path, entry[2])
            if content is None and entry[3] in wheels:
                content = _from_wheel(wheels[entry[3]], item.path, entry[2])
            if content is None:
                lost.append(item.path)
            else:
                _put(path, content, entry[1], item.path.startswith("bin/") or "/bin/" in item.path)
    if stale and not lost:
        _compile(release, sorted(stale))
        _manifest.refresh(release, manifest, [path for path in manifest["files"] if _manifest.source_of(path) in stale])
    return lost
