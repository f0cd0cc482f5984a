# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Use an environment that somebody else made, as it is: it is looked at and noted down, and never written to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _manifest, _release
from ._engine_build import BuildError, judge, look
from ._source_patch import PatchError, decide, parse
from ._source_patch_apply import locate, shipped_sum


def verdicts(environment: Path, patches: Mapping[str, str]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """What each patch means for an environment: records as a release has them, and faults."""
    found: dict[str, dict[str, str]] = {}
    faults: list[str] = []
    for name, content in patches.items():
        try:
            patch = parse(name, content.encode())
            path = locate(environment, patch.package, patch.file)
            verdict = decide(patch, path.read_bytes(), shipped_sum(path)).verdict
        except (PatchError, OSError) as exc:
            faults.append(str(exc))
            continue
        if verdict == "applied":
            faults.append(
                f"{path} lacks the patch {name}; an adopted environment is not written to, so patch it yourself"
            )
        found[name] = {"verdict": verdict, "patch_sha256": patch.sha256}
    return found, faults


def adopt(
    root: Path,
    name: str,
    environment: Path,
    expected: Mapping[str, str],
    imports: Sequence[str],
    programs: Sequence[str],
    card_environment: Mapping[str, str],
    patches: Mapping[str, str],
    check_mode: bool,
) -> dict[str, Any]:
    """Verify an environment and note down what is in it. BuildError names everything that is wrong with it."""
    for program in ("bin/python", "bin/vllm"):
        if not (environment / program).exists():
            raise BuildError(f"{environment}/{program} is not there; engine_adopt must name an environment with vLLM")
    # Without this, looking would leave compiled bytecode behind.
    found = look(environment, imports, programs, {**card_environment, "PYTHONDONTWRITEBYTECODE": "1"})
    records, faults = verdicts(environment, patches)
    faults = [*judge(found, expected), *faults]
    if faults:
        raise BuildError(f"{environment} cannot be used as it is: {'; '.join(faults)}")
    manifest = _manifest.make(environment)
    # Whoever runs it may compile; that is no change of what it is.
    manifest["files"] = {path: entry for path, entry in manifest["files"].items() if not _manifest.is_bytecode(path)}
    summary = {"id": name, "path": str(environment), "versions": found, "digest": manifest["digest"]}
    if not check_mode:
        note = {**manifest, **summary, "patches": records}
        _release.write_atomic(root / "state" / "adopted" / f"{name}.json", _manifest.dump(note))
    return summary
