# SPDX-License-Identifier: GPL-3.0-or-later
"""The image of the nodes: a Debian tree with its kernel, made once, kept under a hash of what it is made from."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.vm import guest, initrd
from testbed.vm.settings import RAILS, USER, VmError

SUITE = "trixie"
PACKAGES = (
    # The system itself, and what Ansible and the roles expect of it.
    *("acl", "apt", "ca-certificates", "dbus", "dbus-user-session", "kmod", "less", "libcap2-bin", "libpam-systemd"),
    "linux-sysctl-defaults",
    *("openssh-server", "polkitd", "procps", "python3", "python3-apt", "rsync", "sudo", "systemd", "systemd-sysv"),
    # The kernel, with busybox for the initrd.
    *("busybox-static", "linux-image-amd64", "udev"),
    # The fabric: looking at it, making soft-RoCE devices, verbs programs, addresses for it.
    *("ethtool", "ibverbs-providers", "ibverbs-utils", "iproute2", "iputils-ping", "nftables", "perftest", "rdma-core"),
    *("iperf3", "netplan.io"),
)
EXCLUDED = (
    "/usr/share/man/*",
    "/usr/share/doc/*",
    "/usr/share/locale/*",
    *(
        f"/usr/lib/modules/*/kernel/{part}/*"
        for part in ("drivers/gpu", "drivers/media", "drivers/net/wireless", "net/wireless")
    ),
    "/usr/lib/modules/*/kernel/sound/*",
)
DISK_BYTES = 4 << 30
# Packages of the machine that runs the VMs: emulator, disk tool, tree builder, file system maker, keys, client.
HOST_PACKAGES = (
    "qemu-system-x86",
    "qemu-utils",
    "mmdebstrap",
    "e2fsprogs",
    "debian-archive-keyring",
    "openssh-client",
)
HOST_PROGRAMS = ("qemu-system-x86_64", "qemu-img", "mmdebstrap", "mke2fs", "ssh", "ssh-keygen")


@dataclass(frozen=True)
class Image:
    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "root.img"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd"

    @property
    def digest(self) -> str:
        return self.folder.name


def digest() -> str:
    """Sixteen digits that change with anything the image is made from."""
    text = hashlib.sha256()
    for source in ("image.py", "initrd.py"):
        text.update((Path(__file__).parent / source).read_bytes())
    text.update(repr((sorted(guest.files().items()), guest.MASKED, USER)).encode())
    return text.hexdigest()[:16]


def missing_programs() -> list[str]:
    return [program for program in HOST_PROGRAMS if shutil.which(program) is None]


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Hold an exclusive lock; a builder elsewhere is waited for, but not for ever."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise VmError(f"{path}: still held by another run after {seconds:.0f} s") from None
                time.sleep(0.2)
        yield


def run(argv: list[str], seconds: float, env: dict[str, str] | None = None) -> str:
    """Run a program to its end, or say what it said."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=seconds, env={**os.environ, **(env or {})}, check=False
        )
    except FileNotFoundError:
        raise VmError(f"{argv[0]} is not installed; cure: testbed/vm/vm deps") from None
    except subprocess.TimeoutExpired:
        raise VmError(f"{argv[0]} was not done after {seconds:.0f} s") from None
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise VmError(f"{' '.join(argv[:3])} … ended with {done.returncode}:\n{tail}")
    return done.stdout


def ensure(cache: Path, rebuild: bool = False) -> Image:
    """The image from the cache, built first where it is not there."""
    image = Image(cache / digest())
    with locked(cache / "build.lock", 1200):
        if image.folder.exists() and not rebuild:
            return image
        if os.geteuid() != 0:
            raise VmError(
                f"{image.folder} is not built, and building it takes root (mmdebstrap, chroot); running it does not.\n"
                f"cure: sudo VM_CACHE={cache} testbed/vm/vm build"
            )
        work = cache / f".building-{os.getpid()}"
        for left in cache.glob(".building-*"):
            shutil.rmtree(left)  # under the lock: of a build that was killed
        work.mkdir(parents=True)
        try:
            _build(work)
            shutil.rmtree(image.folder, ignore_errors=True)
            work.rename(image.folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return image


def _build(work: Path) -> None:
    tree = work / "tree"
    options = [
        f"--include={','.join(PACKAGES)}",
        '--aptopt=Apt::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude={path}" for path in EXCLUDED),
    ]
    # INITRD=No: the kernel package's hook would build an initrd that nothing here boots from.
    run(
        ["mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", *options, SUITE, str(tree)],
        900,
        {"INITRD": "No"},
    )
    _make_guest(tree)
    kernels = sorted((tree / "boot").glob("vmlinuz-*"))
    if len(kernels) != 1:
        raise VmError(f"{tree}/boot: found {[k.name for k in kernels]}, expected one kernel")
    version = kernels[0].name.removeprefix("vmlinuz-")
    shutil.copyfile(kernels[0], work / "vmlinuz")
    (work / "initrd").write_bytes(initrd.build(tree, version))
    shutil.rmtree(tree / "boot")
    (tree / "boot").mkdir()
    (work / "packages").write_text(run(["chroot", str(tree), "dpkg-query", "-W"], 60))
    with (work / "root.img").open("wb") as disk:
        disk.truncate(DISK_BYTES)
    run(["mke2fs", "-q", "-F", "-t", "ext4", "-L", "root", "-d", str(tree), str(work / "root.img")], 120)
    shutil.rmtree(tree)


def _make_guest(tree: Path) -> None:
    inside = ["chroot", str(tree)]
    run([*inside, "useradd", "--create-home", "--shell", "/bin/bash", "--groups", "sudo", USER], 60)
    for path, file in guest.files().items():
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.text)
        target.chmod(file.mode)
    # Each node has keys and a name of its own, given at boot; what the package scripts made here is nobody's.
    for unwanted in [*(tree / "etc/ssh").glob("ssh_host_*"), tree / "etc/hostname", tree / "etc/resolv.conf"]:
        unwanted.unlink(missing_ok=True)
    (tree / "etc/machine-id").write_text("")
    units = [guest.rxe_unit_name(rail) for rail in RAILS]
    run([*inside, "systemctl", "--quiet", "enable", "systemd-networkd.service", "vm-ready.service", *units], 60)
    run([*inside, "systemctl", "--quiet", "disable", "sshd-keygen.service"], 60)
    run([*inside, "systemctl", "--quiet", "mask", *guest.MASKED], 60)
