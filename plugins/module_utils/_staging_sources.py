# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Sources other than the hub: a folder or mount of this node, another host, addresses with sums, the controller."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from ._mirror_rsync import HOPELESS, IO_TIMEOUT_S, call, remote_shell_options
from ._mirror_work import Item, Pool
from ._model_tree import check
from ._model_tree_deep import cores, file_sum
from ._progress_job import Job, JobError
from ._staging import AwaitedError, Listing, private

_BLOCK: Final = 32 << 20
_TRIES: Final = 8
_HTTP_TIMEOUT_S: Final = 30
MOUNTS: Final = Path("/proc/self/mounts")
_NETWORK: Final = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre")


class _Plain:
    """What arrives under its own name grows there."""

    def arrived(self, item: Item) -> int:
        return item.arrived()


def _inside(into: Path, path: str) -> Path:
    target = into / path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def mount_type(path: str, mounts: str) -> str:
    """Type of the file system that a path lies on, by a text as in /proc/self/mounts."""
    best, kind = "", ""
    for entry in mounts.splitlines():
        _device, point, fstype = entry.split()[:3]
        # What would break the columns is written in octal.
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
        # Of two mounts on one point the later one is seen.
        if Path(path).is_relative_to(point) and len(point) >= len(best):
            best, kind = point, fstype
    return kind


class Folder(_Plain):
    """A folder that this node can read; links are followed. `mounted`: it must lie on a network file system."""

    def __init__(self, path: str, mounted: bool = False) -> None:
        self.root = Path(path)
        self.mounted = mounted

    def listing(self, job: Job) -> Listing:
        kind = mount_type(os.path.realpath(self.root), MOUNTS.read_text())
        if self.mounted and not kind.startswith(_NETWORK):
            raise JobError(f"{self.root} lies on {kind or 'nothing'}, not on a network file system: mount it first")
        tree = check(self.root)
        if not tree.complete:
            faults = "; ".join(f"{p['file'] or self.root}: {p['found']}" for p in tree.problems[:5])
            raise JobError(f"{self.root} is not a complete model ({len(tree.problems)} faults): {faults}")
        names = [name for name in tree.files if not private(name)]
        job.meter.phase(f"hashing {self.root}", sum(tree.files[name].size for name in names))
        sums: dict[str, str] = {}

        def one(name: str) -> None:
            sums[name] = file_sum(self.root / name, job.meter.add)

        _each(job, names, one)
        return Listing("", [(name, tree.files[name].size, sums[name]) for name in names])

    def fetch(self, wanted: Sequence[Item], into: Path, job: Job) -> None:
        def one(item: Item) -> None:
            _copy(self.root / item.path, _inside(into, item.path), job)

        _each(job, wanted, one, min(4, cores()))


def _each(job: Job, work: Sequence[Any], one: Any, workers: int = 0) -> None:
    """One call each, several at once."""
    pool = Pool(job.stop)
    with ThreadPoolExecutor(workers or cores()) as executor:
        for piece in work:
            pool.submit(executor, one, piece)
        pool.wait(job.meter.publish)
    if job.stop.is_set():
        raise JobError("stopped before everything was here: run again to go on")


def _copy(source: Path, target: Path, job: Job) -> None:
    """Copy within the kernel (shared blocks where the file system has them), going on where an earlier copy ended."""
    with source.open("rb", buffering=0) as reader, target.open("ab", buffering=0) as writer:
        at = writer.tell()
        reader.seek(at)
        size = os.fstat(reader.fileno()).st_size
        while at < size and not job.stop.is_set():
            try:
                count = os.copy_file_range(reader.fileno(), writer.fileno(), min(_BLOCK, size - at))
            except OSError:
                # Append mode, or two file systems that the kernel does not join.
                reader.seek(at)
                count = writer.write(reader.read(min(_BLOCK, size - at)) or b"") or 0
            if not count:
                break
            at += count
            job.meter.add(count)


class Pushed(_Plain):
    """Files that the controller sends once it knows which ones lack."""

    def __init__(self, files: Sequence[Mapping[str, Any]]) -> None:
        self.files = files

    def listing(self, job: Job) -> Listing:
        del job
        return Listing("", [(str(f["path"]), int(f["size"]), str(f["sha256"])) for f in self.files])

    def fetch(self, wanted: Sequence[Item], into: Path, job: Job) -> None:
        del into, job
        if lacking := [item.path for item in wanted if item.arrived() != item.size]:
            raise AwaitedError(lacking)


class Host(_Plain):
    """A folder of another host, over SSH with the keys of this node's user."""

    def __init__(self, address: str, path: str, user: str = "", key: str = "", port: int = 22) -> None:
        self.target = f"{user}@{address}" if user else address
        self.path = path.rstrip("/")
        self.shell = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-p", str(port)]
        self.shell += ["-o", f"ServerAliveInterval={IO_TIMEOUT_S}"]
        self.shell += ["-i", key] if key else []

    def listing(self, job: Job) -> Listing:
        job.meter.phase(f"hashing on {self.target}", 0)
        script = (
            f"cd {shlex.quote(self.path)} && find -L . -type f -not -path './.*' -printf '%s %P\\0' && printf '\\0' && "
            "find -L . -type f -not -path './.*' -print0 | xargs -0 -r -n 1 -P 8 sha256sum -z"
        )
        done = subprocess.run(
            [*self.shell, self.target, script], capture_output=True, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise JobError(f"{self.target}:{self.path}: {said or f'ssh ended with {done.returncode}'}")
        sizes, sums = done.stdout.split(b"\0\0", 1)
        by_name = {line[66:].removeprefix(b"./").lstrip(b"\n"): line[:64] for line in sums.split(b"\0") if line}
        files = []
        for entry in sizes.lstrip(b"\0").split(b"\0"):
            size, name = entry.split(b" ", 1)
            files.append((name.decode("utf-8", "surrogateescape"), int(size), by_name[name].decode()))
        return Listing("", files)

    def fetch(self, wanted: Sequence[Item], into: Path, job: Job) -> None:
        options = [*remote_shell_options(shlex.join(self.shell)), "--copy-links", "--append"]
        before = -1
        for _unused in range(_TRIES):
            outcome = call(job, options, [item.path for item in wanted], f"{self.target}:{self.path}/", into)
            if outcome.code == 0:
                return
            have = sum(map(self.arrived, wanted))
            if outcome.code in HOPELESS or job.stop.is_set() or have == before:
                break
            before = have
        raise JobError(f"{self.target}:{self.path}: rsync: {outcome.text or outcome.code}; run again to go on")


class Urls(_Plain):
    """Files at addresses of their own, each with its sum from the inventory: path, url, sha256, size."""

    def __init__(self, files: Sequence[Mapping[str, Any]]) -> None:
        self.files = {str(entry["path"]): entry for entry in files}

    def listing(self, job: Job) -> Listing:
        found = []
        for path, entry in self.files.items():
            size = entry.get("size")
            if size is None:
                job.meter.phase(f"asking for {path}", 0)
                size = self._size(str(entry["url"]))
            found.append((path, int(size), str(entry["sha256"]).lower()))
        return Listing("", found)

    @staticmethod
    def _size(url: str) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=_HTTP_TIMEOUT_S) as answer:
                return int(answer.headers["Content-Length"])
        except (OSError, TypeError, ValueError) as error:
            raise JobError(f"{url}: does not say its size ({error}); give it as `size`") from None

    def fetch(self, wanted: Sequence[Item], into: Path, job: Job) -> None:
        def one(item: Item) -> None:
            self._get(str(self.files[item.path]["url"]), _inside(into, item.path), item.size, job)

        _each(job, wanted, one, 4)

    @staticmethod
    def _get(url: str, target: Path, size: int, job: Job) -> None:
        """Ranges from where the file ends; given up after a few tries without a byte."""
        fruitless, last = 0, ""
        while not job.stop.is_set() and fruitless < _TRIES:
            at = target.stat().st_size if target.exists() else 0
            if at == size:
                return
            try:
                came = _get_rest(url, target, at, job)
            except (OSError, ValueError) as error:
                came, last = (target.stat().st_size if target.exists() else 0) - at, str(error)
                if isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404, 410):
                    break
            fruitless = 0 if came > 0 else fruitless + 1
            job.stop.wait(min(0.5 * 2**fruitless, 20) if came <= 0 else 0)
        if not job.stop.is_set():
            raise JobError(f"{url}: {last or 'ended early'}; run again to go on")


def _get_rest(url: str, target: Path, at: int, job: Job) -> int:
    request = urllib.request.Request(url, headers={"Range": f"bytes={at}-"} if at else {})
    came = 0
    with urllib.request.urlopen(request, timeout=_HTTP_TIMEOUT_S) as answer:
        whole = at and answer.status != 206
        if whole:
            # The server does not know ranges: from the beginning.
            job.meter.add(-at)
        with target.open("wb" if whole else "ab") as writer:
            while (block := answer.read(1 << 20)) and not job.stop.is_set():
                writer.write(block)
                came += len(block)
                job.meter.add(len(block))
    return came
