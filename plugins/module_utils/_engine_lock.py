# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Locks of the engine: PEP 751 files that hold, for every package, its one version and the hashes of its wheels.

A lock serves one or several targets (Python and architecture). Resolving is uv's work, a target at a time; `merge`
puts what came out into one file, in which a package that only some targets need carries a marker that lists them.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ._engine_tags import Target, best, normalize

TOOL = "dgx-spark-vllm"


class LockError(ValueError):
    """A lock that cannot be used; the message says what was found, what was expected and the cure."""


class Wheel(NamedTuple):
    """One wheel of the lock. An empty url: it is built from sources that ship with the role."""

    package: str
    version: str
    filename: str
    url: str
    size: int
    sha256: str


class Lock(NamedTuple):
    """A lock as read: its own bytes' hash is what a release is named after."""

    sha256: str
    environments: tuple[str, ...]
    packages: dict[str, dict[str, Any]]
    tool: dict[str, Any]


def _filename(wheel: Mapping[str, Any]) -> str:
    """The file name of a wheel entry."""
    return unquote(urlsplit(str(wheel.get("url") or wheel["path"])).path.rsplit("/", 1)[-1])


def _entry(wheel: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a wheel entry that are kept: where it comes from, how long it is, what it hashes to."""
    sha256 = str(dict(wheel.get("hashes", {})).get("sha256", ""))
    source = {"path": wheel["path"]} if "path" in wheel else {"url": wheel["url"]}
    return {**source, "size": int(wheel.get("size") or 0), "sha256": sha256}


def parse(content: bytes, name: str = "lock") -> Lock:
    """Read a lock; LockError where it is not one or a wheel has no sha256."""
    try:
        data = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise LockError(f"{name}: not TOML: {exc}") from exc
    if str(data.get("lock-version", "")).split(".", maxsplit=1)[0] != "1":
        found = data.get("lock-version", "none")
        raise LockError(f"{name}: lock-version is {found!r}, expected 1.0; make it again with playbooks/lock.yml")
    packages: dict[str, dict[str, Any]] = {}
    for package in data.get("packages", []):
        wheels = [_entry(wheel) for wheel in package.get("wheels", [])]
        unsure = [_filename(wheel) for wheel in wheels if not wheel["sha256"]]
        if not wheels or unsure:
            what = f"no sha256 for {', '.join(unsure)}" if unsure else "no wheel"
            raise LockError(f"{name}: {package.get('name')}: {what}; every package needs a wheel with its hash")
        key = normalize(str(package["name"]))
        packages[key] = {"version": str(package["version"]), "marker": package.get("marker", ""), "wheels": wheels}
    tool = dict(data.get("tool", {}).get(TOOL, {}))
    return Lock(hashlib.sha256(content).hexdigest(), tuple(data.get("environments", [])), packages, tool)


def read(paths: Sequence[Path]) -> Lock:
    """One lock of one or several files: a later file's packages replace an earlier one's (as another NCCL does)."""
    contents = [path.read_bytes() for path in paths]
    first, *rest = [parse(content, path.name) for content, path in zip(contents, paths, strict=True)]
    if not rest:
        return first
    packages = dict(first.packages)
    for overlay, path in zip(rest, paths[1:], strict=True):
        unknown = sorted(overlay.packages.keys() - packages.keys())
        if unknown:
            raise LockError(f"{path.name}: replaces {', '.join(unknown)}, which {paths[0].name} does not have")
        packages.update(overlay.packages)
    return first._replace(sha256=hashlib.sha256(b"".join(contents)).hexdigest(), packages=packages)


def release_id(lock_sha256: str, variant: str, python: str) -> str:
    """The name of the release that a lock makes: 16 hex digits of lock, variant and Python's minor version."""
    return hashlib.sha256(f"{lock_sha256}\n{variant}\n{python}\n".encode()).hexdigest()[:16]


def select(lock: Lock, target: Target, name: str = "lock") -> list[Wheel]:
    """The one wheel of every package that a target needs, in the order of their names.

    LockError names every package without a wheel for the target at once; an older version is never an answer (C41).
    """
    if lock.environments and target.marker not in lock.environments:
        known = "; ".join(lock.environments)
        raise LockError(
            f"{name}: made for {known}; this node has {target}. Renew the lock with playbooks/lock.yml on such a node"
        )
    wheels, missing = [], []
    for package, entry in sorted(lock.packages.items()):
        if entry["marker"] and target.marker not in entry["marker"].split(" or "):
            continue
        files = {_filename(wheel): wheel for wheel in entry["wheels"]}
        chosen = best(files, target)
        if chosen is None:
            missing.append(f"{package} {entry['version']} (has {', '.join(sorted(files))})")
            continue
        wheel = files[chosen]
        wheels.append(Wheel(package, entry["version"], chosen, wheel.get("url", ""), wheel["size"], wheel["sha256"]))
    if missing:
        raise LockError(f"{name}: no wheel for {target}: {'; '.join(missing)}")
    return wheels


def requirements(wheels: Iterable[Wheel]) -> str:
    """The text that uv installs from: every package at its version with the hash of its one wheel."""
    return "".join(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels)


def merge(parts: Sequence[tuple[Target, bytes]], local: Sequence[Wheel], tool: Mapping[str, Any]) -> bytes:
    """One lock of the locks of several targets and of the wheels that ship as sources.

    LockError where two targets got different versions of a package: resolve the later one with the earlier one's
    versions as constraints.
    """
    markers = [target.marker for target, _unused in parts]
    found: dict[str, dict[str, Any]] = {}
    for target, content in parts:
        for package, entry in parse(content, str(target)).packages.items():
            kept = found.setdefault(package, {"version": entry["version"], "targets": [], "wheels": {}})
            if kept["version"] != entry["version"]:
                raise LockError(f"{package}: {kept['version']} and {entry['version']} for {target}")
            kept["targets"].append(target.marker)
            kept["wheels"].update({_filename(wheel): wheel for wheel in entry["wheels"]})
    for wheel in local:
        entry = {"path": wheel.filename, "size": wheel.size, "sha256": wheel.sha256}
        found[wheel.package] = {"version": wheel.version, "targets": markers, "wheels": {wheel.filename: entry}}
    notes = {**tool, "vllm": found["vllm"]["version"].partition("+")[0] if "vllm" in found else ""}
    lines = [
        f"# Lock of the engine, made with uv by playbooks/lock.yml for {len(markers)} target(s); do not edit.",
        'lock-version = "1.0"',
        f"environments = {_array(markers)}",
        'created-by = "dgx_spark.vllm"',
    ]
    for package, entry in sorted(found.items()):
        lines += ["", "[[packages]]", f"name = {_text(package)}", f"version = {_text(entry['version'])}"]
        if entry["targets"] != markers:
            lines.append(f"marker = {_text(' or '.join(entry['targets']))}")
        lines += ["wheels = [", *(_wheel_line(wheel) for _unused, wheel in sorted(entry["wheels"].items())), "]"]
    lines += [
        "",
        f"[tool.{TOOL}]",
        *(f"{key} = {_text(str(value))}" for key, value in sorted(notes.items()) if value),
        "",
    ]
    return "\n".join(lines).encode()


def _text(value: str) -> str:
    """A TOML basic string: JSON's escapes are among TOML's."""
    return json.dumps(value)


def _array(values: Iterable[str]) -> str:
    """A TOML array of strings, one a line."""
    return "[\n" + "".join(f"    {_text(value)},\n" for value in values) + "]"


def _wheel_line(wheel: Mapping[str, Any]) -> str:
    """One wheel of a lock as an inline table."""
    source = f"path = {_text(wheel['path'])}" if "path" in wheel else f"url = {_text(wheel['url'])}"
    return f"    {{ {source}, size = {wheel['size']}, hashes = {{ sha256 = {_text(wheel['sha256'])} }} }},"


def difference(old: Lock | None, new: Lock) -> list[str]:
    """What a new lock changes, package by package, as lines to read."""
    before = old.packages if old else {}
    lines = []
    for package in sorted(before.keys() | new.packages.keys()):
        was, now = before.get(package), new.packages.get(package)
        if was is None and now is not None:
            lines.append(f"+ {package} {now['version']}")
        elif now is None and was is not None:
            lines.append(f"- {package} {was['version']}")
        elif was is not None and now is not None and was["version"] != now["version"]:
            lines.append(f"~ {package} {was['version']} -> {now['version']}")
        elif was is not None and now is not None and _sums(was) != _sums(now):
            lines.append(f"! {package} {now['version']}: other wheels under the same version")
    return lines


def _sums(entry: Mapping[str, Any]) -> set[str]:
    """The hashes of a package's wheels."""
    return {wheel["sha256"] for wheel in entry["wheels"]}
