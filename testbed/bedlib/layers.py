# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots: the nodes' upper layers, moved into the cache as read-only layers that later beds start on.

A snapshot fits the tree it was made on and nothing else, so it lies below that tree's name. Making one is a chain of
renames; DIR/save.json says that one is under way, and `recover` brings it to its end or back.
"""

from __future__ import annotations

import errno
import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .options import USER, Bed
from .system import BedError, run

META = "meta.json"
# Belongs to one bed or one boot, not to a snapshot. Host keys stay: what the nodes know of each other goes on fitting.
FORGOTTEN = ("etc/machine-id", "var/lib/systemd/random-seed", f"home/{USER}/.ssh/authorized_keys")
EMPTIED = ("tmp", "var/tmp", "var/log/journal")
# What the bed that saves goes on with in its new, empty upper layer.
KEPT = ("etc/machine-id", "etc/hostname", "etc/hosts", f"home/{USER}/.ssh/authorized_keys", "var/log/journal")


def remove(path: Path) -> None:
    run(["rm", "-rf", "--one-file-system", str(path)], timeout=900)


def move(source: Path, target: Path) -> None:
    """Rename; between file systems copy with everything an overlay needs (owners, links, extended attributes)."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = target.with_name(target.name + ".part")
        remove(part)
        run(["cp", "-a", str(source), str(part)], timeout=1800)
        part.rename(target)
        remove(source)


@contextmanager
def store_lock(cache: Path) -> Iterator[Path]:
    """The folder of all snapshots, for one changing command at a time."""
    folder = cache / "snapshots"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder


def lower_of(bed: Bed, number: int) -> list[Path]:
    return [Path(line) for line in bed.node_path(number, "lower").read_text().splitlines()]


def topmost(bed: Bed, number: int, path: str) -> Path:
    """Where a node sees a file from: its upper layer or the first below that has it."""
    for layer in (bed.node_path(number, "upper"), *lower_of(bed, number)):
        if (layer / path).exists():
            return layer / path
    raise BedError(f"{bed.host(number)}: no /{path} in any layer")


def read_meta(folder: Path) -> dict[str, object]:
    data = json.loads((folder / META).read_text())
    assert isinstance(data, dict)
    return data


def found(cache: Path) -> list[Path]:
    """Every finished snapshot, of any tree."""
    return sorted(path.parent for path in (cache / "snapshots").glob(f"*/[!.]*/{META}"))


def lower_folders(bed: Bed, cache: Path, base: Path) -> dict[int, list[Path]]:
    """The read-only layers of every node, topmost first; an error says why a snapshot does not fit."""
    chain: list[Path] = []
    if bed.origin:
        folder = check(cache, bed.origin, base.name, bed.nodes)
        meta = read_meta(folder)
        parents = meta["parents"]
        assert isinstance(parents, list)
        chain = [folder, *(folder.with_name(str(name)) for name in parents)]
    return {number: [*(layer / bed.host(number) for layer in chain), base] for number in bed.numbers()}


def check(cache: Path, name: str, tree: str, nodes: int) -> Path:
    folder = cache / "snapshots" / tree / name
    if not (folder / META).exists():
        others = [path for path in found(cache) if path.name == name]
        if others:
            raise BedError(
                f"snapshot {name} was made on another tree ({others[0].parent.name}, now {tree}); save it anew"
            )
        raise BedError(f"no snapshot {name} in {cache / 'snapshots'}; `bed saved` lists them")
    count = read_meta(folder)["nodes"]
    if count != nodes:
        raise BedError(f"snapshot {name} holds {count} nodes and this bed has {nodes}")
    return folder


def users(folder: Path) -> list[str]:
    """Beds whose nodes stand on a snapshot, and snapshots that were made on top of it."""
    names = []
    for meta in folder.parent.glob(f"[!.]*/{META}"):
        parents = read_meta(meta.parent)["parents"]
        if isinstance(parents, list) and folder.name in parents:
            names.append(f"snapshot {meta.parent.name}")
    for note in folder.glob("users/*"):
        directory = Path(note.read_text().strip())
        if any(f"{folder}/" in lower.read_text() for lower in directory.glob("nodes/*/lower")):
            names.append(f"the bed in {directory}")
    return names


def note_users(bed: Bed) -> None:
    """Tell every snapshot that this bed stands on it, so that `forget` refuses."""
    for layer in lower_of(bed, 1)[:-1]:
        notes = layer.parent / "users"
        notes.mkdir(exist_ok=True)
        (notes / bed.prefix).write_text(f"{bed.directory}\n")


def save(bed: Bed, cache: Path, name: str, replace: bool) -> None:
    """The nodes are off. Their upper layers become the snapshot, and each goes on with an empty one above it."""
    lower = lower_of(bed, 1)
    with store_lock(cache) as folder:
        final = folder / lower[-1].name / name
        if (final / META).exists():
            if not replace:
                raise BedError(f"snapshot {name} exists; --replace makes it anew")
            drop(final)
        new = final.with_name(f".{name}.new")
        remove(new)
        new.mkdir(parents=True)
        parents = [layer.parent.name for layer in lower[:-1]]
        meta = {"name": name, "nodes": bed.nodes, "distro": bed.distro, "parents": parents, "made": int(time.time())}
        plan = {"new": str(new), "final": str(final), "meta": meta, "moved": False}
        write_plan(bed, plan)
        for number in bed.numbers():
            carry_over(bed.node_path(number, "upper"), bed.node_path(number, "upper.next"))
            move(bed.node_path(number, "upper"), new / bed.host(number))
        write_plan(bed, {**plan, "moved": True})
        recover(bed)
        # The same name on older trees is of no use to anybody any more.
        for old in found(cache):
            if old.name == name and old != final and not users(old):
                remove(old)


def write_plan(bed: Bed, plan: dict[str, object]) -> None:
    note = bed.path("save.json.new")
    note.write_text(json.dumps(plan))
    note.replace(bed.path("save.json"))


def drop(folder: Path) -> None:
    holders = users(folder)
    if holders:
        raise BedError(f"snapshot {folder.name} is in use by {', '.join(holders)}")
    gone = folder.with_name(f".{folder.name}.gone")
    remove(gone)
    folder.rename(gone)
    remove(gone)


def recover(bed: Bed) -> None:
    """Finish a snapshot whose layers have all moved, or undo one that was cut off before; both can be cut off again."""
    note = bed.path("save.json")
    if not note.exists():
        return
    plan = json.loads(note.read_text())
    new, final = Path(plan["new"]), Path(plan["final"])
    if not plan["moved"]:
        for number in bed.numbers():
            if (new / bed.host(number)).is_dir():
                remove(bed.node_path(number, "upper"))
                move(new / bed.host(number), bed.node_path(number, "upper"))
            remove(bed.node_path(number, "upper.next"))
        remove(new)
        note.unlink()
        return
    if not final.exists():
        for number in bed.numbers():
            clean(new / bed.host(number))
        (new / META).write_text(json.dumps(plan["meta"], indent=2) + "\n")
        new.rename(final)
    for number in bed.numbers():
        stand_on(bed, number, final / bed.host(number))
    note_users(bed)
    note.unlink()


def stand_on(bed: Bed, number: int, layer: Path) -> None:
    """Put a node whose upper layer has become a snapshot on top of it, with the upper layer prepared for it."""
    lines = [line for line in bed.node_path(number, "lower").read_text().splitlines() if line != str(layer)]
    bed.node_path(number, "lower").write_text("".join(f"{line}\n" for line in (layer, *lines)))
    following = bed.node_path(number, "upper.next")
    if following.is_dir():
        remove(bed.node_path(number, "upper"))
        following.rename(bed.node_path(number, "upper"))
    remove(bed.node_path(number, "work"))
    bed.node_path(number, "work").mkdir()


def carry_over(upper: Path, following: Path) -> None:
    """A new upper layer with the identity of the old one. Without its extended attributes: they speak of layers."""
    remove(following)
    following.mkdir()
    present = [path for path in KEPT if (upper / path).exists()]
    script = 'cd "$1"; cp -r --preserve=mode,ownership,timestamps --parents "${@:3}" "$2"'
    run(["bash", "-ec", script, "bash", str(upper), str(following), *present], timeout=300)
    for change in ("chown", "chmod"):
        run([change, f"--reference={upper}", str(following)])


def clean(layer: Path) -> None:
    for path in FORGOTTEN:
        (layer / path).unlink(missing_ok=True)
    for path in EMPTIED:
        if (layer / path).is_dir():
            run(["find", str(layer / path), "-mindepth", "1", "-delete"], timeout=300)
