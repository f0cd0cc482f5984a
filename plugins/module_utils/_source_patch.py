# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Patches of installed source files, decided on by content and not by version.

A patch is a small TOML file: what it is for, which text it replaces by which (`edit`), sums of known originals and
results (`known`), what shows that it is in (`present`) or no longer needed (`not_needed`), and a program that judges
the file after writing (`check`). Everything here is pure; _source_patch_apply writes.
"""

from __future__ import annotations

import difflib
import hashlib
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple


class PatchError(ValueError):
    """A patch that cannot be used, or content that it does not know; the message says found, expected and cure."""


class Edit(NamedTuple):
    """A text that must occur exactly once, and what takes its place."""

    anchor: str
    replacement: str


class Patch(NamedTuple):
    """A patch as its file says."""

    name: str
    sha256: str
    summary: str
    package: str
    file: str
    edits: tuple[Edit, ...]
    present: str
    not_needed: str
    originals: frozenset[str]
    results: frozenset[str]
    check: str


class Decision(NamedTuple):
    """What is to be done with a content: the verdict, and the content that must be there afterwards."""

    verdict: str
    content: bytes


def sha256(content: bytes) -> str:
    """The sum of a content."""
    return hashlib.sha256(content).hexdigest()


def parse(name: str, content: bytes) -> Patch:
    """Read a patch; PatchError names everything that its head lacks."""
    try:
        data = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise PatchError(f"patch {name}: not TOML: {exc}") from exc
    faults = [f"{key} is missing" for key in ("summary", "reason", "file", "present") if not data.get(key)]
    edits = [Edit(str(item.get("anchor", "")), str(item.get("replacement", ""))) for item in data.get("edit", [])]
    if not edits or not all(edit.anchor for edit in edits):
        faults.append("an edit with an anchor is missing")
    known = data.get("known", [])
    faults += _known_faults(known)
    unknown = data.keys() - {"summary", "reason", "package", "file", "present", "not_needed", "check", "edit", "known"}
    faults += [f"{key} is no key of a patch" for key in sorted(unknown)]
    if faults:
        raise PatchError(f"patch {name}: {'; '.join(faults)}")
    return Patch(
        name=name,
        sha256=sha256(content),
        summary=data["summary"],
        package=str(data.get("package", "")),
        file=data["file"],
        edits=tuple(edits),
        present=data["present"],
        not_needed=str(data.get("not_needed", "")),
        originals=frozenset(item["before"] for item in known),
        results=frozenset(item["after"] for item in known),
        check=str(data.get("check", "")),
    )


def _known_faults(known: list[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the list of known sums."""
    wrong = [
        f"known[{index}].{key} is not a sha256"
        for index, item in enumerate(known)
        for key in ("before", "after")
        if len(str(item.get(key, ""))) != 64
    ]
    return wrong or ([] if known else ["known (sums of an original and its result) is missing"])


def forward(patch: Patch, text: str) -> tuple[str, str]:
    """The text with all edits made, and an empty string or the anchor that does not occur exactly once."""
    for edit in patch.edits:
        if text.count(edit.anchor) != 1:
            return text, edit.anchor
        text = text.replace(edit.anchor, edit.replacement)
    return text, ""


def backward(patch: Patch, text: str) -> tuple[str, str]:
    """The text with all edits taken back, and an empty string or the replacement that does not occur exactly once."""
    for edit in reversed(patch.edits):
        if not edit.replacement or text.count(edit.replacement) != 1:
            return text, edit.replacement
        text = text.replace(edit.replacement, edit.anchor)
    return text, ""


def _decode(content: bytes) -> str:
    """Source text; an undecodable file is simply one that no anchor is found in."""
    return content.decode(errors="surrogateescape")


def decide(patch: Patch, content: bytes, shipped: str = "") -> Decision:
    """What a patch means for a content. PatchError where it is none that the patch knows.

    shipped: the sum that the file should have, by its package and the patches recorded before. A file that has neither
    that nor a known one was edited by hand, and is left alone even where the anchor is still there (C51).
    """
    found, text = sha256(content), _decode(content)
    if found in patch.results:
        return Decision("present", content)
    if found not in patch.originals:
        if patch.not_needed and patch.not_needed in text:
            return Decision("not_needed", content)
        if patch.present in text:
            return Decision("present", content)
    new, missing = forward(patch, text)
    edited = bool(shipped) and shipped != found and found not in patch.originals
    if missing or edited:
        why = [f"the package shipped {shipped}: edited by hand since"] if edited else []
        why += [f"this anchor does not occur exactly once:\n{missing.rstrip()}"] if missing else []
        raise PatchError(_unknown(patch, found, "\n".join(why)))
    result = new.encode(errors="surrogateescape")
    if found in patch.originals and sha256(result) not in patch.results:
        raise PatchError(f"patch {patch.name}: makes {sha256(result)} of a known original, which is no known result")
    return Decision("applied", result)


def restore(patch: Patch, content: bytes, backup: bytes | None) -> Decision:
    """What `state: absent` means for a content; PatchError where the original is not to be had."""
    found, text = sha256(content), _decode(content)
    if found in patch.originals or (patch.present not in text and found not in patch.results):
        return Decision("absent", content)
    if backup is not None and _decode(content) == forward(patch, _decode(backup))[0]:
        return Decision("restored", backup)
    old, missing = backward(patch, text)
    original = old.encode(errors="surrogateescape")
    if missing or (found in patch.results and sha256(original) not in patch.originals):
        raise PatchError(_unknown(patch, found, "the patch is in, but not as this file puts it; reinstall the package"))
    return Decision("restored", original)


def _unknown(patch: Patch, found: str, why: str) -> str:
    """The message for a content that a patch does not know."""
    return (
        f"patch {patch.name}: the content of {patch.file} is not known, the file is untouched\n"
        f"found sha256: {found}\n"
        f"expected: {', '.join(sorted(patch.originals))} (original) or {', '.join(sorted(patch.results))} (patched)\n"
        f"{why}\n"
        "cure: reinstall the package, or write a patch for this version"
    )


def unified(name: str, before: bytes, after: bytes) -> str:
    """The difference as a unified diff."""
    lines = difflib.unified_diff(
        _decode(before).splitlines(keepends=True), _decode(after).splitlines(keepends=True), name, f"{name} (patched)"
    )
    return "".join(lines)
