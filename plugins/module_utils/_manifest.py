# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What is in a folder of installed packages: every file with its size, time and sha256, and what has changed since.

The sums of packages and of the whole leave out what differs from node to node without meaning anything: compiled
bytecode and notes about the installation itself. Those files are in the manifest all the same.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ._engine_tags import normalize

NAME = "manifest.json"
FORMAT = 1
# Files that say how and when they were installed: not the same on two nodes, and nothing that runs reads them.
_LOCAL = frozenset({"pyvenv.cfg", "RECORD", "uv_cache.json"})
# What the deployment itself keeps in the folder.
OWN = frozenset({NAME, "release.json", "patches", "generated.zip"})
LINK = "link:"


class Seen(NamedTuple):
    """A file as a look at the folder shows it; a link carries where it points to."""

    size: int
    mtime_ns: int
    link: str


class Difference(NamedTuple):
    """One file that is not as the manifest says: changed, missing, or not in the manifest (unlisted)."""

    path: str
    package: str
    problem: str
    expected: str
    found: str


def scan(root: Path, bytecode: bool = True) -> dict[str, Seen]:
    """Every file and link below a folder, by path relative to it; without the folders of bytecode if so wished."""
    seen: dict[str, Seen] = {}
    base = len(str(root)) + 1
    pending = [str(root)]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = entry.path[base:]
                if path in OWN:
                    continue
                if entry.is_symlink():
                    seen[path] = Seen(0, 0, str(Path(entry.path).readlink()))
                elif entry.is_dir(follow_symlinks=False):
                    if bytecode or entry.name != "__pycache__":
                        pending.append(entry.path)
                else:
                    stat = entry.stat(follow_symlinks=False)
                    seen[path] = Seen(stat.st_size, stat.st_mtime_ns, "")
    return seen


def _hash_many(arguments: tuple[str, list[str]]) -> dict[str, str]:
    """The sha256 of files; an empty string where a file cannot be read."""
    root, paths = arguments
    sums = {}
    for path in paths:
        try:
            with Path(root, path).open("rb", buffering=0) as handle:
                sums[path] = hashlib.file_digest(handle, "sha256").hexdigest()
        except OSError:
            sums[path] = ""
    return sums


def _plain_signals() -> None:
    """Let a worker be ended: whoever forked it may have handlers of its own that it would go on with."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _ignore(_length: int) -> None:
    """Nobody wants to know."""


def hash_files(
    root: Path, sizes: Mapping[str, int], workers: int | None = None, count: Callable[[int], None] = _ignore
) -> dict[str, str]:
    """The sha256 of files below a folder, on all cores that this process may use.

    Processes, not threads: with tens of thousands of small files it is the interpreter that is busy. The largest
    files go first, one at a time, so that none of them is started when everything else is done. count: is told the
    bytes that were hashed.
    """
    cores = workers or len(os.sched_getaffinity(0))
    paths = sorted(sizes, key=lambda path: -sizes[path])
    if cores < 2 or len(paths) < 2:
        return _hash_many((str(root), paths))
    large = [[path] for path in paths if sizes[path] >= 8 << 20]
    small = paths[len(large) :]
    jobs = large + [small[start : start + 256] for start in range(0, len(small), 256)]
    # fork: a module that Ansible runs from a zip archive cannot be imported again by a fresh interpreter.
    pool = multiprocessing.get_context("fork").Pool(min(cores, len(jobs)), initializer=_plain_signals)
    sums: dict[str, str] = {}
    try:
        for part in pool.imap_unordered(_hash_many, [(str(root), job) for job in jobs]):
            sums.update(part)
            count(sum(sizes[path] for path in part))
        # They end by themselves: a signal would be lost on one that is only just starting.
        pool.close()
    except BaseException:
        pool.terminate()
        raise
    finally:
        pool.join()
    return sums


def records(root: Path) -> tuple[dict[str, str], dict[str, str], dict[str, tuple[str, str]]]:
    """What the installed packages say of themselves: owner of each path, version of each package, recorded sums.

    A recorded sum is (algorithm, urlsafe base64 without padding), as RECORD writes it.
    """
    owners: dict[str, str] = {}
    versions: dict[str, str] = {}
    sums: dict[str, tuple[str, str]] = {}
    for record in root.glob("lib/python3*/site-packages/*.dist-info/RECORD"):
        name, _unused, version = record.parent.name.removesuffix(".dist-info").partition("-")
        package = normalize(name)
        versions[package] = version
        site = record.parent.parent
        with record.open(newline="", encoding="utf-8") as handle:
            for row in csv.reader(handle):
                path = os.path.normpath(site / row[0])[len(str(root)) + 1 :]
                owners[path] = package
                algorithm, _unused, value = row[1].partition("=")
                if value:
                    sums[path] = (algorithm, value)
    return owners, versions, sums


def is_bytecode(path: str) -> bool:
    """Whether a path is compiled bytecode."""
    return path.endswith(".pyc")


def source_of(path: str) -> str:
    """The source that a file of bytecode was compiled from."""
    folder, _unused, name = path.rpartition("/")
    return f"{folder.removesuffix('__pycache__')}{name.split('.', 1)[0]}.py"


def owner_of(path: str, owners: Mapping[str, str]) -> str:
    """The package a file belongs to; bytecode belongs to its source's, the environment itself to none."""
    return owners.get(source_of(path) if is_bytecode(path) else path, "")


def digest(files: Mapping[str, list[Any]], package: str | None = None) -> str:
    """One sum over the files of a package, or of all: the same on every node that holds the same."""
    total = hashlib.sha256()
    for path in sorted(files):
        size, _unused, sha256, owner = files[path]
        if is_bytecode(path) or path.rpartition("/")[2] in _LOCAL or (package is not None and owner != package):
            continue
        total.update(f"{path}\0{size}\0{sha256}\n".encode())
    return total.hexdigest()


def make(root: Path, workers: int | None = None, count: Callable[[int], None] = _ignore) -> dict[str, Any]:
    """The manifest of a folder of installed packages."""
    owners, versions, _unused = records(root)
    seen = scan(root)
    sums = hash_files(root, {path: item.size for path, item in seen.items() if not item.link}, workers, count)
    files: dict[str, list[Any]] = {
        path: [item.size, item.mtime_ns, f"{LINK}{item.link}" if item.link else sums[path], owner_of(path, owners)]
        for path, item in seen.items()
    }
    grouped: dict[str, dict[str, list[Any]]] = {}
    for path, entry in files.items():
        grouped.setdefault(entry[3], {})[path] = entry
    packages = {
        name: {
            "version": versions.get(name, ""),
            "digest": digest(part),
            "files": len(part),
            "size": sum(entry[0] for entry in part.values()),
        }
        for name, part in sorted(grouped.items())
    }
    return {"format": FORMAT, "digest": digest(files), "packages": packages, "files": files}


def dump(manifest: Mapping[str, Any]) -> str:
    """A manifest as it is written."""
    return json.dumps(manifest, separators=(",", ":"))


def refresh(root: Path, manifest: dict[str, Any], paths: Iterable[str]) -> None:
    """Take files of bytecode as they are now into a manifest, after their sources were compiled again."""
    for path in filter(is_bytecode, paths):
        stat = (root / path).stat()
        entry = manifest["files"][path]
        entry[:3] = [stat.st_size, stat.st_mtime_ns, _hash_many((str(root), [path]))[path]]


def broken_records(root: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Files whose content is not what their wheel recorded, straight after an installation."""
    _unused, _unused, recorded = records(root)
    wrong = []
    for path, (algorithm, value) in recorded.items():
        entry = manifest["files"].get(path)
        if entry is None:
            wrong.append(f"{path} (missing)")
        elif algorithm == "sha256" and entry[2] != hexadecimal(value):
            wrong.append(path)
    return sorted(wrong)


def hexadecimal(value: str) -> str:
    """RECORD's spelling of a sum as hexadecimal digits."""
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()


def load(path: Path) -> dict[str, Any]:
    """A manifest as written; ValueError where it is none, or one of another format."""
    data = json.loads(path.read_bytes())
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"{path}: not a manifest of format {FORMAT}")
    return data


def compare(
    root: Path,
    manifest: Mapping[str, Any],
    patched: Mapping[str, str] | None = None,
    deep: bool = False,
    workers: int | None = None,
    only: Collection[str] = (),
) -> list[Difference]:
    """How a folder differs from its manifest.

    Quick: what has the size and time of the manifest is taken as equal, everything else is hashed; bytecode is left
    out. Deep: all is hashed. patched: files whose content is known to be another one, by path; their bytecode may be
    anything. only: look at these paths and hash them, instead of all.
    """
    files: Mapping[str, list[Any]] = manifest["files"]
    patched = patched or {}
    deep = deep or bool(only)
    seen = scan(root, bytecode=deep)
    if only:
        seen = {path: item for path, item in seen.items() if path in only}
    found: list[Difference] = []
    to_hash: dict[str, int] = {}
    for path, item in seen.items():
        entry = files.get(path)
        if is_bytecode(path) and (source_of(path) in patched or (entry is None and source_of(path) in files)):
            continue
        if entry is None:
            found.append(Difference(path, "", "unlisted", "", item.link and f"{LINK}{item.link}"))
        elif item.link or entry[2].startswith(LINK):
            link = f"{LINK}{item.link}"
            if link != entry[2]:
                found.append(Difference(path, entry[3], "changed", entry[2], link))
        elif deep or path in patched or entry[0] != item.size or entry[1] != item.mtime_ns:
            to_hash[path] = item.size
    sums = hash_files(root, to_hash, workers)
    for path, sha256 in sums.items():
        expected = patched.get(path) or files[path][2]
        if sha256 != expected:
            found.append(Difference(path, files[path][3], "changed", expected, sha256))
    for path in (set(only) & files.keys() if only else files.keys()) - seen.keys():
        if not is_bytecode(path) or (deep and source_of(path) not in patched):
            found.append(Difference(path, files[path][3], "missing", patched.get(path) or files[path][2], ""))
    return sorted(found)


def unequal(manifests: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, dict[str, str]]:
    """Packages whose sums are not the same on all hosts: {package: {host: version and sum}}."""
    by_host = dict(manifests)
    names = {name for packages in by_host.values() for name in packages}
    table: dict[str, dict[str, str]] = {}
    for name in sorted(names):
        row = {host: packages.get(name, {}) for host, packages in by_host.items()}
        if len({entry.get("digest") for entry in row.values()}) > 1:
            table[name] = {
                host: f"{entry['version']} ({entry['digest'][:12]})" if entry else "absent"
                for host, entry in row.items()
            }
    return table
