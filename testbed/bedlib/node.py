# SPDX-License-Identifier: GPL-3.0-or-later
"""One node: its keeper (which boots it, again after every reboot of the guest), power, and SSH."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import cable, groups, network
from .options import CHECKOUT, Bed
from .system import BedError, wait_for

REBOOT = 133  # what systemd-nspawn --keep-unit exits with when the guest asks for a reboot
POWEROFF = signal.SIGRTMIN + 4  # systemd as PID 1 of the guest takes these two as orders
RESTART = signal.SIGRTMIN + 5
BOOT_LIMIT = 120
STOP_LIMIT = 120
# A guest that reboots as soon as it is up would do so for ever.
SHORT_BOOT, SHORT_BOOTS = 3, 5
# IPC_LOCK: RDMA-like memory locking; NET_ADMIN: the firewall and addresses of its own namespace.
CAPABILITIES = "CAP_IPC_LOCK,CAP_NET_ADMIN"
NSPAWN_ENVIRONMENT = {
    # systemd 256 and newer refuse the v1 layout that nspawn takes over from a hybrid host.
    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
    # /tmp on disk, as DGX OS has it; the network's sysctls are the node's own.
    "SYSTEMD_NSPAWN_TMPFS_TMP": "0",
    "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
    "SYSTEMD_NSPAWN_LOCK": "0",
    "SYSTEMD_LOG_LEVEL": "warning",
}


def overlay_options(lower: list[str], upper: Path, work: Path) -> str:
    """redirect_dir: without it a folder that comes from a lower layer cannot be renamed."""
    return f"lowerdir={':'.join(lower)},upperdir={upper},workdir={work},redirect_dir=on,index=off,metacopy=off"


def boot_argv(bed: Bed, number: int, lower: list[str]) -> list[str]:
    """Overlay and guest in a mount namespace that ends with them, so that no mount can be left on this machine.

    Its mounts are slaves: a deleted network namespace goes away here too.
    """
    name = bed.namespace(number)
    root, upper, work = (bed.node_path(number, part) for part in ("root", "upper", "work"))
    script = 'mount -t overlay "$1" -o "$2" "$3"; shift 3; exec "$@"'
    return [
        *("unshare", "--mount", "--propagation", "slave", "sh", "-ec", script, "sh"),
        *(name, overlay_options(lower, upper, work), str(root)),
        "nsenter",
        f"--net={network.NETNS / name}",
        "systemd-nspawn",
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--boot",
        "--console=pipe",
        f"--directory={root}",
        f"--machine={name}",
        f"--hostname={bed.host(number)}",
        "--resolv-conf=off",
        "--link-journal=no",
        "--timezone=off",
        f"--capability={CAPABILITIES}",
        f"--bind-ro={bed.fixture_path(number)}:/opt/fixture",
    ]


def keep(bed: Bed, number: int) -> int:
    """The keeper's life: boot the node, and again for as long as its guest asks for a reboot."""
    groups.join(bed, number, "keeper")
    groups.delegate(bed, number)
    code, short = REBOOT, 0
    while code == REBOOT and short < SHORT_BOOTS:
        network.make_node(bed, number)
        cable.plug(bed)
        groups.remove_part(bed, number, "guest")
        begin = time.monotonic()
        code = boot(bed, number)
        lived = time.monotonic() - begin
        short = short + 1 if lived < SHORT_BOOT else 0
        print(f"keeper: node ended with {code} after {lived:.1f} s", flush=True)
    if short == SHORT_BOOTS:
        print(f"keeper: {short} boots in a row lived less than {SHORT_BOOT} s; it stays off", flush=True)
    network.drop_node(bed, number)
    cable.plug(bed)
    return 0 if code == 0 else 1


def boot(bed: Bed, number: int) -> int:
    environment = {**os.environ, **NSPAWN_ENVIRONMENT}
    lower = bed.node_path(number, "lower").read_text().splitlines()
    guest = subprocess.Popen(
        boot_argv(bed, number, lower),
        stdin=subprocess.DEVNULL,
        env=environment,
        preexec_fn=lambda: groups.join(bed, number, "guest"),
    )
    code = guest.wait()
    # Killed by a signal: whatever the guest still runs goes with it.
    groups.kill(groups.processes(bed, number) - keeper_processes(bed, number))
    return code


def keeper_processes(bed: Bed, number: int) -> set[int]:
    found: set[int] = set()
    for folder in groups.folders(bed, number):
        with contextlib.suppress(OSError):
            found.update(int(line) for line in (folder / "keeper" / "cgroup.procs").read_text().split())
    return found


def keeper_alive(bed: Bed, number: int) -> bool:
    return bool(keeper_processes(bed, number))


def leader(bed: Bed, number: int) -> int | None:
    """The guest's PID 1 as this machine sees it: in the node's group, one PID namespace down, first there."""
    for pid in groups.processes(bed, number):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("NSpid:") and line.split()[2:] == ["1"]:
                    return pid
    return None


def launch(bed: Bed, number: int) -> None:
    """Start the keeper, detached; on a host with systemd in a delegated scope, else in a group at the top."""
    argv = [sys.executable, str(CHECKOUT / "testbed" / "bed"), "--dir", str(bed.directory), "_keep", str(number)]
    join: Callable[[], None] | None = functools.partial(groups.join, bed, number, "keeper")
    if groups.host_has_systemd():
        scope = ["systemd-run", "--scope", "--quiet", "--collect", "--slice=system.slice", "--property=Delegate=yes"]
        argv, join = [*scope, f"--unit={groups.unit(bed, number)}", *argv], None
    environment = {**os.environ, "BED_KEEPER": str(bed.directory)}
    with bed.node_path(number, "console.log").open("ab") as log:
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
            preexec_fn=join,
            cwd="/",
        )


def start(bed: Bed, number: int) -> None:
    """Power on. The caller waits for SSH, so that several nodes can boot at once."""
    if keeper_alive(bed, number):
        return
    groups.kill(groups.processes(bed, number))
    launch(bed, number)


def ssh_argv(bed: Bed, number: int, *command: str) -> list[str]:
    return ["ssh", "-F", str(bed.path("ssh_config")), bed.host(number), *command]


def answers(bed: Bed, number: int) -> bool:
    argv = ssh_argv(bed, number, "true")
    argv[1:1] = ["-o", "ConnectTimeout=2", "-o", "BatchMode=yes"]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def console_tail(bed: Bed, number: int, lines: int = 15) -> str:
    path = bed.node_path(number, "console.log")
    text = path.read_text(errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-lines:])


def wait_ssh(bed: Bed, number: int) -> None:
    """Up means: a login works. A node that ends meanwhile is told at once, with its console."""
    end = time.monotonic() + BOOT_LIMIT
    grace = time.monotonic() + 5
    while not answers(bed, number):
        dead = time.monotonic() > grace and not keeper_alive(bed, number)
        if dead or time.monotonic() > end:
            what = "ended while booting" if dead else f"no SSH login at {bed.address(number)} within {BOOT_LIMIT} s"
            raise BedError(f"{bed.host(number)}: {what}; its console says:\n{console_tail(bed, number)}")
        time.sleep(0.1)


def signal_leader(bed: Bed, number: int, order: int) -> int:
    pid = leader(bed, number)
    if pid is None:
        raise BedError(f"{bed.host(number)} is off; `bed start {number}` powers it on")
    os.kill(pid, order)
    return pid


def stop(bed: Bed, number: int) -> None:
    """Clean shutdown; after the time limit the power goes, with a message."""
    if not keeper_alive(bed, number):
        return
    signal_leader(bed, number, POWEROFF)
    try:
        wait_for(lambda: not keeper_alive(bed, number), STOP_LIMIT, f"{bed.host(number)} did not shut down")
    except BedError:
        kill(bed, number)
        raise
    groups.remove_part(bed, number)


def reboot(bed: Bed, number: int) -> None:
    old = signal_leader(bed, number, RESTART)
    what = f"{bed.host(number)} did not go down for its reboot"
    wait_for(lambda: leader(bed, number) != old, STOP_LIMIT, what)
    wait_ssh(bed, number)


def kill(bed: Bed, number: int) -> None:
    """Power cut: the cables go dead, then every process of the node, without a word to anyone."""
    cable.unplug_node(bed, number)

    def gone() -> bool:
        left = groups.processes(bed, number)
        groups.kill(left)
        return not left

    wait_for(gone, 20, f"{bed.host(number)}: processes did not die")
    # The keeper may have been at it too.
    network.drop_node(bed, number)
    if network.namespace_exists(bed.switch):
        cable.plug(bed)
    groups.remove_part(bed, number)
