# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Resolve a variant into a lock, with uv, once for every target; the user's own settings have no say in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _engine_lock
from ._engine_build import CHECK_TIMEOUT_S, BuildError, run
from ._engine_lock import Wheel
from ._engine_tags import Target

# The C library of Ubuntu 24.04 and DGX OS: with an older one packages of the engine have no wheel for aarch64.
GLIBC = (2, 39)
RESOLVE_TIMEOUT_S = 1800


def project(row: Mapping[str, Any], target: Target) -> str:
    """What is to be resolved, as uv reads it: a package that has an index of its own comes from there or not at all,
    and nothing else is ever asked of that index."""
    sources = {str(name): str(url) for name, url in row.get("sources", {}).items()}
    names = {url: f"index-{number}" for number, url in enumerate(dict.fromkeys(sources.values()))}
    lines = [
        *("[project]", 'name = "what-the-variant-wants"', 'version = "0"'),
        f"requires-python = {json.dumps('>=' + target.python)}",
        f"dependencies = {json.dumps(list(row['requirements']))}",
        "[tool.uv.sources]",
        *(f"{name} = {{ index = {json.dumps(names[url])} }}" for name, url in sources.items()),
    ]
    for url, name in names.items():
        lines += ["[[tool.uv.index]]", f"name = {json.dumps(name)}", f"url = {json.dumps(url)}", "explicit = true"]
    return "\n".join([*lines, ""])


def arguments(row: Mapping[str, Any], target: Target, index: str, files: Mapping[str, Path]) -> list[str]:
    """The command line that resolves a variant for a target, behind `uv`."""
    argv = [
        *("pip", "compile", "--quiet", "--no-annotate", "--no-header", "--format", "pylock.toml"),
        *("--python", sys.executable, "--python-version", target.python),
        *("--python-platform", f"{target.arch}-manylinux_{target.glibc[0]}_{target.glibc[1]}"),
        # An sdist would be built on a node by chance; only a wheel is the same everywhere.
        *("--only-binary", ":all:"),
        *("--default-index", index),
    ]
    for extra in row.get("indexes", []):
        argv += ["--index", extra]
    if row.get("indexes"):
        # The index of a variant carries old versions of common packages; the first index would win with them.
        argv += ["--index-strategy", "unsafe-best-match"]
    if row.get("exclude_newer"):
        argv += ["--exclude-newer", str(row["exclude_newer"])]
        for package in [*row.get("undated", []), *row.get("sources", {})]:
            argv += ["--exclude-newer-package", f"{package}=false"]
    for option in ("overrides", "constraints"):
        if option in files:
            argv += [f"--{option}", str(files[option])]
    if row.get("no_deps"):
        argv.append("--no-deps")
    return [*argv, str(files["project"]), "--output-file", str(files["output"])]


def _certificates() -> dict[str, str]:
    """Where the system keeps the certificates that it trusts, for an index inside a site."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    return {"SSL_CERT_FILE": str(bundle)} if bundle.exists() else {}


def _environment(cache: Path) -> dict[str, str]:
    """uv's whole environment while it resolves; a proxy is a fact of the machine's network, not of the user's taste."""
    proxies = {key: value for key, value in os.environ.items() if re.fullmatch(r"(?i)(https?|all|no)_proxy", key)}
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(cache),
        "LANG": "C.UTF-8",
        "UV_CACHE_DIR": str(cache / "uv"),
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        **_certificates(),
        **proxies,
    }


def _pins(content: bytes) -> str:
    """The versions of a lock as constraints for the next target."""
    packages = _engine_lock.parse(content).packages
    return "".join(f"{name}=={entry['version']}\n" for name, entry in packages.items())


def resolve(
    uv: Path,
    row: Mapping[str, Any],
    targets: Sequence[Target],
    index: str,
    cache: Path,
    local: Sequence[Wheel],
    tool: Mapping[str, Any],
) -> bytes:
    """A lock of a variant. BuildError where a target cannot be resolved, with uv's reason.

    local: wheels that ship as sources. Later targets keep the versions of the first one: one lock, one version of every
    package.
    """
    cache.mkdir(parents=True, exist_ok=True)
    parts: list[tuple[Target, bytes]] = []
    folder = Path(tempfile.mkdtemp(prefix="lock-", dir=cache))
    try:
        for target in targets:
            files = {"project": folder / "pyproject.toml", "output": folder / "pylock.toml"}
            files["output"].unlink(missing_ok=True)
            files["project"].write_text(project(row, target))
            if row.get("overrides"):
                files["overrides"] = folder / "overrides.txt"
                files["overrides"].write_text("\n".join(row["overrides"]) + "\n")
            if parts:
                files["constraints"] = folder / "constraints.txt"
                files["constraints"].write_text(_pins(parts[0][1]))
            try:
                run([str(uv), *arguments(row, target, index, files)], _environment(cache), RESOLVE_TIMEOUT_S)
            except BuildError as exc:
                raise BuildError(f"{target}: {exc}") from exc
            parts.append((target, files["output"].read_bytes()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _with_sizes(_engine_lock.merge(parts, local, tool))


def _with_sizes(content: bytes) -> bytes:
    """A lock with the length of every wheel whose index did not say it."""
    lines = content.decode().splitlines(keepends=True)
    for number, line in enumerate(lines):
        match = re.search(r'url = "([^"]+)", size = 0,', line)
        if match:
            request = urllib.request.Request(match[1], method="HEAD")
            with urllib.request.urlopen(request, timeout=CHECK_TIMEOUT_S) as answer:
                length = int(answer.headers.get("Content-Length") or 0)
            lines[number] = line.replace("size = 0,", f"size = {length},")
    return "".join(lines).encode()


def nccl_row(row: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The row that makes the lock of another NCCL: that package alone."""
    package = str(row["nccl_package"])
    undated = [package] if row.get("indexes") else []
    return {
        "requirements": [f"{package}=={version}"],
        "indexes": row.get("indexes", []),
        "undated": undated,
        "no_deps": True,
    }


def parse_targets(items: Sequence[Sequence[str]]) -> list[Target]:
    """Targets from pairs of Python's minor version and architecture."""
    return [Target(str(python), str(arch), GLIBC) for python, arch in items]
