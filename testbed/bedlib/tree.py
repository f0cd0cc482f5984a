# SPDX-License-Identifier: GPL-3.0-or-later
"""The base tree that all nodes share, made once from the distribution's archive and kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import signal
import stat
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .options import CHECKOUT, UID, USER
from .system import BedError, run, say

TESTBED = CHECKOUT / "testbed"
FILES = TESTBED / "tree"
MAKING_LIMIT = 1800

OPTIONS = (
    "--variant=minbase",
    "--mode=root",
    '--aptopt=Apt::Install-Recommends "false"',
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
)
# Debian's archive is checked by apt with the host's keyring. Ubuntu's keys come in a package, pinned here.
UBUNTU_KEYRING = "https://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
UBUNTU_KEYRING_SHA256 = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
UBUNTU_SOURCE = "deb [signed-by={keyring}] http://archive.ubuntu.com/ubuntu {suite} main universe"


def listed(name: str) -> list[str]:
    """Lines of a list in testbed/, without comments."""
    return [line for line in (TESTBED / name).read_text().splitlines() if line and not line.startswith("#")]


def digest(distro: str, files: Path = FILES) -> str:
    """Name of the tree in the cache: what it is made from."""
    sums = hashlib.sha256()
    for part in (distro, *listed("packages"), *OPTIONS, *listed("masked"), USER, str(UID)):
        sums.update(part.encode() + b"\0")
    for path in sorted(files.rglob("*")):
        status = path.lstat()
        sums.update(f"{path.relative_to(files)} {stat.S_IFMT(status.st_mode)} {status.st_mode & 0o111}\0".encode())
        if path.is_symlink():
            sums.update(str(path.readlink()).encode())
        elif path.is_file():
            sums.update(path.read_bytes())
    return sums.hexdigest()[:16]


def tree_path(cache: Path, distro: str) -> Path:
    return cache / "tree" / digest(distro)


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """One maker of a tree at a time; the others wait for it, or hear that there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                yield False
                return
            say("another bed is making the same tree; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield True


def lock_path(cache: Path, name: str) -> Path:
    return cache / "tree" / f"{name}.lock"


def remove_unfinished(cache: Path) -> None:
    """Trees whose making was cut off; one that is being made is left alone."""
    for path in (cache / "tree").glob(".*.making"):
        with locked(lock_path(cache, path.name.split(".")[1]), wait=False) as free:
            if free:
                remove(path)


def ensure(cache: Path, distro: str) -> Path:
    """The finished tree; made now if it is not there."""
    final = tree_path(cache, distro)
    if final.is_dir():
        return final
    with locked(lock_path(cache, final.name)):
        if final.is_dir():
            return final
        build = final.with_name(f".{final.name}.making")
        remove(build)
        begin = time.monotonic()
        say(f"making the {distro} tree from the distribution's archive, once; about half a minute")
        try:
            (build / "tmp").mkdir(parents=True)
            bootstrap(build / "root", build / "tmp", cache, distro)
            furnish(build / "root")
            (build / "root").rename(final)
        finally:
            remove(build)
        say(f"tree made in {time.monotonic() - begin:.0f} s: {final}")
    return final


def remove(path: Path) -> None:
    run(["rm", "-rf", "--one-file-system", str(path)], timeout=600)


def bootstrap(root: Path, scratch: Path, cache: Path, distro: str) -> None:
    """mmdebstrap in namespaces of its own that die with this process: a killed `up` leaves no mount and no process."""
    source: list[str] = []
    if distro == "noble":
        keyring = ubuntu_keyring(cache)
        source = [UBUNTU_SOURCE.format(keyring=keyring, suite=s) for s in ("noble", "noble-updates", "noble-security")]
    argv = [
        "env",
        f"TMPDIR={scratch}",
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
    ]
    include = ",".join(listed("packages"))
    argv += ["mmdebstrap", *OPTIONS, f"--include={include}", distro, str(root), *source]
    follow(argv, MAKING_LIMIT)


def follow(argv: list[str], limit: float) -> None:
    """Run a long command, passing on what it says it is doing."""
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(argv, stdin=null, stdout=null, stderr=pipe, text=True, errors="replace") as child:
        alarm = threading.Timer(limit, child.kill)
        alarm.start()
        heard = []
        assert child.stderr is not None
        for line in child.stderr:
            heard.append(line)
            if line.startswith("I: ") and line.rstrip().endswith("..."):
                say("  " + line[3:].strip())
        code = child.wait()
        alarm.cancel()
    if code != 0:
        why = f"no end after {limit:.0f} s" if code == -signal.SIGKILL else f"exit {code}"
        raise BedError(f"{' '.join(argv)}: {why}: {''.join(heard[-12:]).strip()}")


def ubuntu_keyring(cache: Path) -> Path:
    """Ubuntu's archive keys out of its package, whose checksum is pinned above."""
    package = cache / "tree" / UBUNTU_KEYRING.rpartition("/")[2]
    if not package.exists():
        try:
            with urllib.request.urlopen(UBUNTU_KEYRING, timeout=60) as answer:
                body = answer.read()
        except OSError as error:
            raise BedError(
                f"{UBUNTU_KEYRING}: {error}; noble needs Ubuntu's archive, trixie (the default) does not"
            ) from error
        package.parent.mkdir(parents=True, exist_ok=True)
        new = package.with_suffix(".new")
        new.write_bytes(body)
        new.rename(package)
    found = hashlib.sha256(package.read_bytes()).hexdigest()
    if found != UBUNTU_KEYRING_SHA256:
        package.unlink()
        raise BedError(f"{UBUNTU_KEYRING}: sha256 {found}, expected {UBUNTU_KEYRING_SHA256}; nothing was used of it")
    folder = cache / "tree" / "ubuntu-keyring"
    run(["dpkg-deb", "-x", str(package), str(folder)])
    return folder / "usr/share/keyrings/ubuntu-archive-keyring.gpg"


def furnish(root: Path) -> None:
    """From a bare distribution to a node without an identity: user, hardware programs, masked units."""
    shutil.copytree(FILES, root, symlinks=True, dirs_exist_ok=True)
    run(["chown", "-hR", "root:root", *(str(root / name) for name in ("etc/sudoers.d", "usr/lib/hardware"))])
    (root / "etc/sudoers.d" / USER).chmod(0o440)
    # Like the first user of a DGX OS: sudo, and adm to read the journal.
    options = ["--create-home", f"--uid={UID}", "--shell=/bin/bash", "--groups=adm,sudo"]
    run(["chroot", str(root), "useradd", *options, USER])
    units = root / "etc/systemd/system"
    for unit in listed("masked"):
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    wants = units / "sysinit.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "hardware.service").symlink_to("../hardware.service")
    (root / "var/log/journal").mkdir(exist_ok=True)
    # mmdebstrap copies these from the host; keys and machine-id belong to a node.
    for pattern in ("etc/ssh/ssh_host_*", "etc/hostname", "etc/hosts", "etc/resolv.conf"):
        for path in root.glob(pattern):
            path.unlink()
    (root / "etc/machine-id").write_text("")
    (root / "etc/resolv.conf").write_text("")
