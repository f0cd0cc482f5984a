# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What there is of the engine on a node, in one look: the release, its patches, its neighbours, what it lacks."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _manifest, _release
from ._host_facts import disk_free

_LIBRARY_FOLDERS = ("usr/lib/*-linux-gnu", "lib/*-linux-gnu", "usr/lib64", "usr/lib", "lib", "usr/local/lib")
_PROGRAM_FOLDERS = ("usr/local/cuda/bin", "usr/bin", "bin")


def glibc() -> list[int]:
    """The version of the C library, which says which wheels run here."""
    text = os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0.0"
    major, minor = text.split()[1].split(".")[:2]
    return [int(major), int(minor)]


def missing_packages(sysroot: Path, wanted: Mapping[str, str]) -> list[str]:
    """Packages of the distribution to install: those whose library or program is not there.

    wanted: package by the name of a library (libnuma.so.1, libavutil.so.*) or of a program (rsync).
    """

    def there(name: str) -> bool:
        folders = _LIBRARY_FOLDERS if ".so" in name else _PROGRAM_FOLDERS
        return any(any(sysroot.glob(f"{folder}/{name}")) for folder in folders)

    return sorted({package for name, package in wanted.items() if not there(name)})


def nccl_of(manifest: Mapping[str, Any], versions: Mapping[str, str]) -> dict[str, str]:
    """The library of NCCL that a rank loads: torch finds the one of its own environment by its run path."""
    for path, entry in manifest["files"].items():
        if path.endswith("/nvidia/nccl/lib/libnccl.so.2"):
            return {"version": versions.get("nccl", ""), "path": path, "sha256": entry[2]}
    return {}


def patches_of(release: Path) -> dict[str, dict[str, Any]]:
    """What was decided about patches for a release, by patch."""
    return {path.stem: _release.read_json(path) for path in sorted((release / "patches").glob("*.json"))}


def patched_files(patches: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The files that patches changed, with the sum that they have since then."""
    return {
        record["file"]: record["after_sha256"]
        for record in patches.values()
        if record.get("verdict") in ("applied", "present") and record.get("file")
    }


def adopted(root: Path) -> list[str]:
    """Paths of the environments that were adopted and are still there."""
    notes = [_release.read_json(path) for path in sorted((root / "state" / "adopted").glob("*.json"))]
    return [str(note["path"]) for note in notes if Path(str(note.get("path", "/-")), "bin/vllm").exists()]


def _manifest_of(root: Path, name: str, path: str | None) -> tuple[Path, Path]:
    """Where an environment lies, and its manifest: an adopted one keeps nothing of ours."""
    if path:
        return Path(path), root / "state" / "adopted" / f"{name}.json"
    release = _release.releases(root) / name
    return release, release / _manifest.NAME


def look_at(
    root: str,
    name: str,
    path: str | None = None,
    deep: bool = False,
    packages: Mapping[str, str] | None = None,
    files_of: Sequence[str] = (),
    sysroot: str = "/",
) -> dict[str, Any]:
    """The state of a release and of what is around it; see engine_info for the keys."""
    base = Path(root)
    found: dict[str, Any] = {
        "state": "absent",
        "digest": "",
        "packages": {},
        "differences": [],
        "patches": {},
        "versions": {},
        "files": {},
        "current": _release.current(base),
        "history": _release.history(base),
        "releases": _release.complete(base),
        "adopted": adopted(base),
        "glibc": glibc(),
        "arch": platform.machine(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "disk_free": disk_free(base),
        "missing_packages": missing_packages(Path(sysroot), packages or {}),
        "nccl": {},
    }
    if not name:
        return found
    release, manifest_path = _manifest_of(base, name, path)
    if not release.is_dir():
        return found
    found["state"] = "partial"
    if not manifest_path.exists():
        return found
    try:
        manifest = _manifest.load(manifest_path)
    except ValueError as exc:
        found["differences"] = [_manifest.Difference(_manifest.NAME, "", str(exc), "", "")._asdict()]
        return found
    found["patches"] = dict(manifest.get("patches", {})) if path else patches_of(release)
    differences = _manifest.compare(release, manifest, patched_files(found["patches"]), deep)
    found["state"] = "damaged" if differences else "ready"
    found["differences"] = [item._asdict() for item in differences[:200]]
    found["difference_count"] = len(differences)
    found["digest"] = manifest["digest"]
    found["packages"] = {
        package: {"version": entry["version"], "digest": entry["digest"]}
        for package, entry in manifest["packages"].items()
    }
    found["versions"] = manifest.get("versions") or _release.read_json(release / "release.json").get("versions", {})
    found["nccl"] = nccl_of(manifest, found["versions"])
    found["files"] = {
        file: entry[2]
        for file, entry in manifest["files"].items()
        if entry[3] in files_of and not _manifest.is_bytecode(file)
    }
    return found
