# SPDX-License-Identifier: GPL-3.0-or-later
"""up and down: from nothing to logins on every node, and back to nothing, also after a crash anywhere between."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from . import groups, identity, layers, network, node, tree
from .options import NAME, Bed, load, store
from .system import BedError, require_tools, run, say

# Who owns a prefix on this machine. In /run: it ends with the namespaces at a reboot.
REGISTRY = Path("/run/dgx-spark-bed")
LOCK_LIMIT = 900
# All that a bed writes into its folder; down removes these and nothing else.
CONTENTS = ("nodes", "fixtures", identity.KEY, f"{identity.KEY}.pub", "known_hosts", "ssh_config")
# The notes that lead to the rest come last.
NOTES = ("save.json.new", "save.json", "bed.json.new", "bed.json")


@contextmanager
def bed_lock(prefix: str) -> Iterator[None]:
    """One changing command a bed at a time."""
    REGISTRY.mkdir(parents=True, exist_ok=True)
    path = REGISTRY / f"{prefix}.lock"
    end = time.monotonic() + LOCK_LIMIT
    told = False
    while True:
        with path.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not told:
                    say(f"another command is at work on bed {prefix}; waiting for it")
                    told = True
                if time.monotonic() > end:
                    raise BedError(f"bed {prefix}: another command held it for {LOCK_LIMIT} s") from None
                time.sleep(0.1)
                continue
            # `down` removes the file while it holds it: a lock on a removed file locks nobody out.
            if not path.exists() or path.stat().st_ino != os.fstat(handle.fileno()).st_ino:
                continue
            yield
            return


def noted(prefix: str) -> str | None:
    """The folder in a prefix's note."""
    try:
        return str(json.loads((REGISTRY / f"{prefix}.json").read_text())["directory"])
    except (OSError, ValueError, KeyError):
        return None


def owner(prefix: str) -> str | None:
    """The folder that holds a prefix. A note without a bed and without namespaces behind it counts for nothing."""
    folder = noted(prefix)
    if folder is None or Path(folder, "bed.json").exists() or network.namespace_exists(f"{prefix}-switch"):
        return folder
    return None


def claim(bed: Bed) -> None:
    """Take the prefix for this folder; refuse names that somebody else has on this machine."""
    holder = owner(bed.prefix)
    if holder is not None and holder != str(bed.directory):
        raise BedError(f"prefix {bed.prefix} belongs to the bed in {holder}; choose another (--prefix, BED_PREFIX)")
    if holder is None and network.namespace_exists(bed.switch):
        raise BedError(f"a namespace {bed.switch} exists and no bed made it; choose another prefix")
    (REGISTRY / f"{bed.prefix}.json").write_text(json.dumps(bed.to_json()) + "\n")


def each(bed: Bed, numbers: Iterable[int], work: Callable[[Bed, int], None]) -> None:
    """Do something on several nodes at once; the first error is raised after all have ended."""
    with ThreadPoolExecutor(max_workers=bed.nodes) as pool:
        for future in [pool.submit(work, bed, number) for number in numbers]:
            future.result()


def up(bed: Bed, cache: Path) -> None:
    require_tools(bed.distro)
    for character in ":,\\ ":
        if character in str(bed.directory) or character in str(cache):
            raise BedError(f"folder {bed.directory} or {cache}: the overlay cannot take {character!r} in a path")
    with bed_lock(bed.prefix):
        kept = load(bed.directory)
        if kept is not None and kept[1]:
            wake(kept[0])
            return
        if kept is not None:
            say("an earlier `up` did not come to its end; clearing what it left")
            wipe(kept[0])
        claim(bed)
        network.check_free(bed)
        store(bed, made=False)
        create(bed, cache)
        store(bed, made=True)
        say(f"{bed.nodes} nodes up: " + ", ".join(f"{bed.host(n)} {bed.address(n)}" for n in bed.numbers()))


def create(bed: Bed, cache: Path) -> None:
    lower = layers.lower_folders(bed, cache, tree.ensure(cache, bed.distro))
    identity.keygen(bed.path(identity.KEY), f"bed {bed.prefix}")
    for number in bed.numbers():
        for part in ("upper", "work", "root"):
            bed.node_path(number, part).mkdir(parents=True, exist_ok=True)
        bed.node_path(number, "lower").write_text("".join(f"{path}\n" for path in lower[number]))
        identity.write_identity(bed, number)
        identity.write_fixtures(bed, number)
    layers.note_users(bed)
    identity.write_access(bed)
    network.make_switch(bed)
    for number in bed.numbers():
        node.start(bed, number)
    each(bed, bed.numbers(), node.wait_ssh)


def wake(bed: Bed) -> None:
    """The bed is made: power on what is off, say so, and change nothing where all is well."""
    off = [number for number in bed.numbers() if not node.keeper_alive(bed, number)]
    if off:
        layers.recover(bed)
    if not network.present(bed):
        # After a reboot of this machine: files are there, namespaces are not.
        claim(bed)
        network.check_free(bed)
        network.drop_all(bed)
        network.make_switch(bed)
    for number in off:
        node.start(bed, number)
    each(bed, bed.numbers(), node.wait_ssh)
    if off:
        say("powered on: " + ", ".join(bed.host(number) for number in off))
    else:
        say(f"already up: {bed.nodes} nodes in {bed.directory}")


def save(bed: Bed, cache: Path, name: str, replace: bool) -> None:
    """Nodes off, their layers into a snapshot, and on again those that were on."""
    if not NAME.fullmatch(name):
        raise BedError(f"snapshot {name!r}: expected letters, digits, dots, dashes and underscores")
    running = [number for number in bed.numbers() if node.keeper_alive(bed, number)]
    each(bed, running, node.stop)
    try:
        layers.recover(bed)
        layers.save(bed, cache, name, replace)
    finally:
        for number in running:
            node.start(bed, number)
    each(bed, running, node.wait_ssh)
    say(f"snapshot {name} saved; `bed up --from {name}` starts {bed.nodes} nodes from it")


def down(bed: Bed, cache: Path) -> None:
    """Leave nothing of this bed; again and again with the same end."""
    tree.remove_unfinished(cache)
    with bed_lock(bed.prefix):
        kept = load(bed.directory)
        if kept is None and noted(bed.prefix) != str(bed.directory):
            say(f"no bed in {bed.directory}")
        else:
            wipe(bed)
            say(f"bed {bed.prefix} is gone")
        (REGISTRY / f"{bed.prefix}.lock").unlink(missing_ok=True)
    if REGISTRY.is_dir() and not any(REGISTRY.iterdir()):
        REGISTRY.rmdir()


def wipe(bed: Bed) -> None:
    """Processes first, then what they held, then files; the notes that lead here come last."""
    if owner(bed.prefix) in (None, str(bed.directory)):
        groups.clear(bed)
        network.drop_all(bed)
        for number in range(1, 9):
            for folder in ("propagate", "unix-export"):
                path = Path("/run/systemd/nspawn", folder, bed.namespace(number))
                if path.is_dir():
                    path.rmdir()
    layers.recover(bed)
    for name in (*CONTENTS, *NOTES):
        run(["rm", "-rf", "--one-file-system", str(bed.path(name))], timeout=900)
    if bed.directory.is_dir() and not any(bed.directory.iterdir()):
        bed.directory.rmdir()
    if owner(bed.prefix) in (None, str(bed.directory)):
        (REGISTRY / f"{bed.prefix}.json").unlink(missing_ok=True)
