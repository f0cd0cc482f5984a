#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package repositories in folders of a node, for apt itself: the distribution's and NVIDIA's.

Usage: debs.py FOLDER, as root on the node. /usr/local/cuda/bin/nvcc moves into the package of the toolkit; it comes
back when that is installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

NVCC = Path("/usr/local/cuda/bin/nvcc")


def package(repository: Path, name: str, files: dict[str, bytes], fields: str = "") -> Path:
    """A package of these files, in a repository."""
    tree = repository / "trees" / name
    for inside, content in files.items():
        target = tree / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o755)
    (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
    control = f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: none <none@example.org>\n{fields}"
    (tree / "DEBIAN/control").write_text(f"{control}Description: {name}\n")
    path = repository / f"{name}_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(path)], check=True)
    return path


def index(repository: Path) -> None:
    """What apt reads of a repository."""
    text = ""
    for path in sorted(repository.glob("*.deb")):
        control = subprocess.run(["dpkg-deb", "-f", str(path)], check=True, capture_output=True, text=True).stdout
        content = path.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        text += f"{control}Filename: ./{path.name}\nSize: {len(content)}\nSHA256: {sha256}\n\n"
    (repository / "Packages").write_text(text)


def main() -> None:
    """Make both, and let apt know of the distribution's only."""
    base = Path(sys.argv[1])
    distribution, nvidia = base / "distribution", base / "nvidia"
    package(distribution, "libneeded1", {"usr/lib/libneeded.so.1": b""})
    index(distribution)
    if NVCC.exists():
        # A driver that it recommends must not come along.
        recommends = "Recommends: nvidia-driver\n"
        package(nvidia, "cuda-toolkit-12-9", {str(NVCC).lstrip("/"): NVCC.read_bytes()}, recommends)
        NVCC.unlink()
    package(nvidia, "nvidia-driver", {"usr/lib/nvidia-driver": b""})
    index(nvidia)
    source = f"deb [trusted=yes] file:{nvidia} ./\n".encode()
    package(base, "cuda-keyring", {"etc/apt/sources.list.d/cuda.list": source})
    sources = Path("/etc/apt/sources.list")
    if not sources.with_suffix(".kept").exists():
        sources.rename(sources.with_suffix(".kept"))
    sources.write_text(f"deb [trusted=yes] file:{distribution} ./\n")


if __name__ == "__main__":
    main()
