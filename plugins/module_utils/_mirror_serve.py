# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Offer model folders to the peers on the fabric: one rsync daemon an address, read only, for as long as it is needed.

No cipher: the cable is the cluster's own, and encryption is what costs most there. What stands in for it: the daemon
listens on fabric addresses only, answers the peers' addresses only, wants a password that lives for one run, offers
only the folders of this run, never writes, and ends with the run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ._mirror_rsync import program
from ._model_tree import scan
from ._model_tree_store import Store, write_atomic
from ._model_tree_types import Tree
from ._progress_job import Job, JobError

USER: Final = "mirror"
_GREETING: Final = b"@RSYNCD:"


@dataclass(frozen=True)
class Offer:
    """What one node offers."""

    root: str
    names: Sequence[str]
    addresses: Sequence[str]
    port: int
    peers: Sequence[str]
    secret: str
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def _quoted(path: Path) -> str:
    """A path as a value of rsyncd.conf, where a percent sign begins a variable and a line end ends the value."""
    text = str(path)
    if "\n" in text or text != text.strip():
        raise JobError(f"{text!r}: rsync cannot offer a folder of this name")
    return text.replace("%", "%%")


def config(offer: Offer) -> str:
    """rsyncd.conf: each model's folder, and what is on its way to it."""
    lines = [
        "use chroot = no",
        # A daemon that root starts would read as nobody; another user's must not try to be anybody.
        *(["uid = 0", "gid = 0"] if os.getuid() == 0 else []),
        "read only = yes",
        "list = no",
        "reverse lookup = no",
        "max connections = 64",
        f"lock file = {_quoted(offer.folder / 'rsyncd.lock')}",
        "timeout = 120",
        f"hosts allow = {' '.join(offer.peers)}",
        "hosts deny = *",
        f"auth users = {USER}",
        f"secrets file = {_quoted(offer.folder / 'rsyncd.secrets')}",
        "strict modes = yes",
        "munge symlinks = no",
        "transfer logging = no",
    ]
    for name in offer.names:
        store = Store(offer.root, name)
        folder = store.offered if store.offered.is_dir() else store.tree
        lines += [f"[{name}]", f"path = {_quoted(folder)}"]
        if any(path.is_symlink() for path in folder.rglob("*")):
            # rsync 3.5 follows a link out of the folder only when told to; older ones always did, and pass over the
            # line, until CVE-2026-29518 was mended in them: those never do. Who could plant a link here is the user
            # whose folder it is.
            lines.append("insecure links = yes")
        lines += [f"[{name}.incoming]", f"path = {_quoted(store.incoming)}"]
    return "\n".join(lines) + "\n"


def lay_out(store: Store) -> None:
    """Where files of a model are links, as in a hub cache, lay out the files they lead to in a folder to offer.

    A daemon of today does not follow a link out of its folder. A second name of the same file costs no space; where
    there can be none (another file system, another user's file) a link stands for it, which an older daemon follows.
    """
    shutil.rmtree(store.offered, ignore_errors=True)
    tree = Tree(str(store.tree))
    scan(store.tree, tree)
    own = store.tree.resolve()
    files = {name: (store.tree / name).resolve() for name in tree.files}
    if all(path == own / name for name, path in files.items()):
        return
    for name, path in files.items():
        place = store.offered / name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, place)
        except OSError:
            place.symlink_to(path)


def greets(address: str, port: int, timeout: float = 2.0) -> bool:
    """Whether an rsync daemon answers there."""
    try:
        with socket.create_connection((address, port), timeout) as connection:
            return connection.recv(len(_GREETING)) == _GREETING
    except OSError:
        return False


def _require_free(offer: Offer) -> None:
    """A port that somebody else has is a fault that is told before anything is started."""
    for address in offer.addresses:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, offer.port))
            except OSError as error:
                cure = "free it, or choose another models_mirror_port"
                raise JobError(f"{address}:{offer.port} cannot be bound: {error.strerror}; {cure}") from None


def _start(offer: Offer, job: Job, address: str) -> subprocess.Popen[bytes]:
    command = [program(), "--daemon", "--no-detach", f"--config={offer.folder / 'rsyncd.conf'}"]
    command += [f"--address={address}", f"--port={offer.port}", f"--log-file={offer.folder / 'rsyncd.log'}"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=job.inherited)


def _busy(daemons: Sequence[subprocess.Popen[bytes]]) -> bool:
    """Whether a peer is connected: a daemon forks once a connection."""
    for daemon in daemons:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().strip():
                return True
    return False


def serve(offer: Offer, job: Job) -> dict[str, Any]:
    """Run the daemons until the job is stopped; one that dies is started again."""
    _require_free(offer)
    offer.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    stores = [Store(offer.root, name) for name in offer.names]
    for store in stores:
        store.incoming.mkdir(parents=True, exist_ok=True)
        lay_out(store)
    write_atomic(offer.folder / "rsyncd.secrets", f"{USER}:{offer.secret}\n".encode(), 0o600)
    write_atomic(offer.folder / "rsyncd.conf", config(offer).encode(), 0o600)
    daemons = {address: _start(offer, job, address) for address in offer.addresses}
    job.meter.phase(f"offering {', '.join(offer.names)} to {len(offer.peers)} addresses", 0)
    restarts = 0
    try:
        while not job.stop.wait(1.0):
            if _busy(list(daemons.values())):
                job.keep()
            for address, daemon in daemons.items():
                if daemon.poll() is not None:
                    restarts += 1
                    # An address that is away (a cable, a reboot of the interface) comes back; so does the daemon.
                    daemons[address] = _start(offer, job, address)
    finally:
        _end(list(daemons.values()))
        (offer.folder / "rsyncd.secrets").unlink(missing_ok=True)
        for store in stores:
            shutil.rmtree(store.offered, ignore_errors=True)
    return {"restarts": restarts}


def _end(daemons: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the daemons and the children that serve a connection: each daemon's children first."""
    for daemon in daemons:
        with contextlib.suppress(OSError, ValueError):
            for child in Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGTERM)
        daemon.terminate()
    for daemon in daemons:
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def wait_until_served(offer: Offer, alive: Any, limit_s: float = 10.0) -> None:
    """Come back when every address answers; raises JobError with the job's own reason where it ended."""
    deadline = time.monotonic() + limit_s
    while missing := [address for address in offer.addresses if not greets(address, offer.port)]:
        status = alive()
        if status.get("state") not in ("running",):
            raise JobError(str(status.get("error") or f"the offer ended: {status.get('state')}"))
        if time.monotonic() > deadline:
            raise JobError(f"no rsync daemon answers on {', '.join(missing)} port {offer.port} within {limit_s:.0f} s")
        time.sleep(0.05)
