# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""A copy of what an installation made and no wheel holds: without it those files could not be put back."""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _manifest

GENERATED = "generated.zip"
GENERATED_MAX = 8 << 20


def keep_generated(release: Path, manifest: Mapping[str, Any]) -> None:
    """Keep a copy of the small files that no wheel holds: scripts, notes of the installer, the environment's own."""
    path = release / GENERATED
    temporary = path.with_name(f".{GENERATED}")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, entry in manifest["files"].items():
            inside = name.startswith("bin/") or "/" not in name or ".dist-info/" in name or not entry[3]
            small = entry[0] <= GENERATED_MAX and not entry[2].startswith(_manifest.LINK)
            if inside and small and not _manifest.is_bytecode(name):
                archive.writestr(name, (release / name).read_bytes())
    temporary.replace(path)


def from_generated(release: Path, name: str, sha256: str) -> bytes | None:
    """The content of a file that was kept, or None where it was not or is not what the manifest says."""
    with contextlib.suppress(OSError, KeyError, zipfile.BadZipFile), zipfile.ZipFile(release / GENERATED) as archive:
        content = archive.read(name)
        if hashlib.sha256(content).hexdigest() == sha256:
            return content
    return None
