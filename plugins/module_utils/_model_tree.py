# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What a complete model folder is, judged from its files alone.

`check` looks at names, sizes and headers, never at the weights themselves: a folder of 24 shards takes a fraction of a
second. It finds everything that is wrong at once, and no input makes it raise.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ._model_tree_types import CONFIG, Entry, Problem, Tree, problem, read_json
from ._model_tree_weights import check_weights
from ._safetensors import Header

# Empty by nature, also in complete checkpoints.
_MAY_BE_EMPTY: Final = (".lock", ".py", ".gitkeep", ".gitignore", ".gitattributes")


def _entry(path: Path, name: str) -> Entry | Problem:
    """Stat one directory entry through its links."""
    try:
        status = path.stat()
    except OSError as error:
        if path.is_symlink():
            return problem(name, "dangling_link", f"a link to {path.readlink()}", "a link that leads to a file")
        return problem(name, "unreadable", error.strerror or str(error), "a file that this user can read")
    if not stat.S_ISREG(status.st_mode):
        return problem(name, "not_a_file", "neither a file nor a folder", "a regular file")
    if not os.access(path, os.R_OK):
        return problem(name, "unreadable", f"mode {stat.S_IMODE(status.st_mode):04o}", "a file that this user can read")
    return Entry(status.st_size, status.st_mtime_ns, status.st_ino, path.is_symlink())


def _walk(root: Path, errors: list[Problem]) -> Iterable[str]:
    """Relative names of everything below the root that is not a folder; linked folders are followed once."""
    seen: set[tuple[int, int]] = set()

    def failed(error: OSError) -> None:
        name = os.path.relpath(error.filename or root, root)
        errors.append(problem(name, "unreadable", error.strerror or str(error), "a folder that this user can read"))

    for folder, folders, names in os.walk(root, onerror=failed, followlinks=True):
        status = Path(folder).stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        for name in sorted(names):
            yield str((Path(folder) / name).relative_to(root))


def scan(root: Path, tree: Tree) -> None:
    """Fill in the files and what is wrong with them as files."""
    for name in _walk(root, tree.problems):
        found = _entry(root / name, name)
        if not isinstance(found, Entry):
            tree.problems.append(found)
            continue
        tree.files[name] = found
        if name.endswith(".incomplete"):
            tree.problems.append(problem(name, "incomplete_file", "a download that was not finished", "no such file"))
        elif found.size == 0 and not name.startswith(".") and not name.endswith(_MAY_BE_EMPTY):
            tree.problems.append(problem(name, "empty_file", "0 bytes", "content"))


def read_config(root: Path, tree: Tree) -> None:
    """Fill in config.json and what is wrong with it."""
    if CONFIG not in tree.files:
        tree.problems.append(problem(CONFIG, "no_config", "no such file", "the model's configuration"))
        return
    try:
        tree.config = read_json(root / CONFIG)
    except ValueError as error:
        tree.problems.append(problem(CONFIG, "bad_config", str(error), "a JSON object"))
        return
    if not tree.config.get("architectures") and not tree.config.get("model_type"):
        found = f"keys {', '.join(sorted(tree.config)[:5]) or 'none'}"
        tree.problems.append(problem(CONFIG, "bad_config", found, "architectures or model_type"))


def check_manifest(tree: Tree, manifest: Mapping[str, Any]) -> None:
    """Names and sizes against a manifest: {"files": [{"path", "size", "sha256"}]}."""
    faulty = {item["file"] for item in tree.problems}
    for item in manifest.get("files", []):
        name, size = str(item["path"]), int(item["size"])
        if name in faulty:
            continue
        if name not in tree.files:
            tree.problems.append(problem(name, "absent_file", "no such file", f"{size} bytes, by the manifest"))
        elif tree.files[name].size != size:
            found, expected = f"{tree.files[name].size} bytes", f"{size} bytes, by the manifest"
            tree.problems.append(problem(name, "wrong_size", found, expected))


def check(
    path: str | os.PathLike[str],
    manifest: Mapping[str, Any] | None = None,
    trusted: Mapping[str, Header] | None = None,
) -> Tree:
    """Judge a folder by names, sizes and headers. `trusted` holds headers of files known to be as they were."""
    root = Path(path)
    tree = Tree(path=str(path))
    if not root.is_dir():
        there = root.is_symlink() or root.exists()
        kind, found = ("not_a_folder", "something else") if there else ("absent", "no such folder")
        tree.problems.append(problem("", kind, found, "the model's folder"))
        return tree
    scan(root, tree)
    read_config(root, tree)
    check_weights(root, tree, trusted or {})
    if manifest:
        check_manifest(tree, manifest)
    return tree
