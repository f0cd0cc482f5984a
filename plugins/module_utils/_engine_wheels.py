# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Small pure-Python wheels from sources that ship with a role: the same bytes from the same sources, always.

A source folder is named NAME-VERSION and holds what the wheel holds, `NAME-VERSION.dist-info/METADATA` among it. The
rest of the metadata (WHEEL, RECORD) is added here.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from pathlib import Path

from ._engine_lock import Wheel
from ._engine_tags import normalize

# The oldest time that a zip file can hold: when a source was checked out says nothing about the wheel.
_TIME = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: dgx_spark.vllm\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _files(source: Path) -> dict[str, bytes]:
    """The files of a source folder by their names in the wheel, in a fixed order."""
    found = sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(source).as_posix(): path.read_bytes() for path in found}


def build(source: Path) -> tuple[str, bytes]:
    """The wheel of a source folder: file name and content."""
    info = f"{source.name}.dist-info"
    files = _files(source)
    if f"{info}/METADATA" not in files:
        raise ValueError(f"{source}: {info}/METADATA is missing")
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    buffer = io.BytesIO()
    # Stored, not deflated: what a compressor writes depends on the version of its library.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, content)
    return f"{source.name}-py3-none-any.whl", buffer.getvalue()


def describe(source: Path) -> Wheel:
    """What the lock says of the wheel of a source folder."""
    filename, content = build(source)
    name, _unused, version = source.name.partition("-")
    return Wheel(normalize(name), version, filename, "", len(content), hashlib.sha256(content).hexdigest())
