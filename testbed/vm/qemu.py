# SPDX-License-Identifier: GPL-3.0-or-later
"""One emulator: its command line, whether hardware help works here, its process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from testbed.vm import initrd, qmp
from testbed.vm.image import Image, run
from testbed.vm.settings import MTU, RAILS, SPEED_MBPS, Settings, VmError, management_mac, name

PROGRAM = "qemu-system-x86_64"
SNAPSHOT = "ready"
KERNEL_ARGUMENTS = (
    "root=/dev/vda rw console=ttyS0 quiet loglevel=4 panic=-1 net.ifnames=0 mitigations=off nokaslr no_timer_check "
    "tsc=reliable random.trust_cpu=on systemd.show_status=0 audit=0 lsm=capability"
)


@dataclass(frozen=True)
class Ports:
    """On 127.0.0.1: SSH of the node (TCP) and its end of each cable (UDP)."""

    ssh: int
    fabric: tuple[int, ...]


def version() -> str:
    return run([PROGRAM, "--version"], 30).splitlines()[0]


def _machine(settings: Settings, accel: str) -> list[str]:
    # What TCG's "max" processor has but makes a guest slower: longer page walks, wide vectors that are emulated.
    processor = "host" if accel == "kvm" else "max,la57=off,-avx2,-avx"
    acceleration = "kvm" if accel == "kvm" else "tcg,thread=multi,tb-size=256"
    return [
        *("-machine", "q35,usb=off,vmport=off", "-accel", acceleration, "-cpu", processor),
        *("-smp", str(settings.cpus), "-m", str(settings.memory_mib)),
        *("-nodefaults", "-no-user-config", "-display", "none"),
    ]


def argv(settings: Settings, image: Image, node: int, ports: dict[int, Ports], accel: str, load: bool) -> list[str]:
    """The command line; paths are relative to the state folder, where the emulator runs."""
    mine, other = ports[node], ports[3 - node]
    line = [
        *(PROGRAM, "-name", name(node), *_machine(settings, accel)),
        *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
        *("-append", f"{KERNEL_ARGUMENTS} systemd.hostname={name(node)}"),
        *("-smbios", f"type=11,path={name(node)}.identity"),
        *("-drive", f"file={name(node)}.qcow2,if=none,id=disk,format=qcow2,cache=unsafe,discard=unmap"),
        *("-device", "virtio-blk-pci,drive=disk", "-device", "virtio-rng-pci"),
        # restrict=on: the node reaches nothing outside, so that a test can not come to depend on it.
        *("-netdev", f"user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:{mine.ssh}-:22"),
        *("-device", f"virtio-net-pci,netdev=management,mac={management_mac(node)},romfile="),
        *("-serial", f"file:{name(node)}.console", "-pidfile", f"{name(node)}.pid"),
        *("-qmp", f"unix:{name(node)}.qmp,server=on,wait=off"),
    ]
    for rail in RAILS:
        ends = (
            f"local.type=inet,local.host=127.0.0.1,local.port={mine.fabric[rail.index]},"
            f"remote.type=inet,remote.host=127.0.0.1,remote.port={other.fabric[rail.index]}"
        )
        line += ["-netdev", f"dgram,id=rail{rail.index},{ends}"]
        card = f"virtio-net-pci,netdev=rail{rail.index},mac={rail.mac(node)},romfile=,host_mtu={MTU}"
        line += ["-device", f"{card},speed={SPEED_MBPS},duplex=full"]
    return [*line, "-loadvm", SNAPSHOT] if load else line


def machine_key(settings: Settings, image: Image, accel: str) -> str:
    """Names a saved state: it fits only the same emulator with the same devices and the same image."""
    ports = {node: Ports(0, (0,) * len(RAILS)) for node in (1, 2)}
    line = argv(settings, image, 1, ports, accel, load=False)
    return hashlib.sha256(json.dumps([version(), *line]).encode()).hexdigest()[:16]


def kvm_works(image: Image, cache: Path) -> bool:
    """Whether a guest really runs under KVM. A /dev/kvm that opens is no proof; the answer is kept until reboot."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    answer = cache / f"kvm-{boot}-{os.geteuid()}"
    if answer.exists():
        return answer.read_text() == "yes"
    line = [PROGRAM, "-accel", "kvm", "-cpu", "host", "-m", "256", "-nodefaults", "-no-user-config", "-no-reboot"]
    line += ["-display", "none", "-serial", "stdio", "-kernel", str(image.kernel), "-initrd", str(image.initrd)]
    line += ["-append", f"console=ttyS0 panic=-1 quiet {initrd.PROBE_ARGUMENT} "]
    try:
        probe = subprocess.run(line, capture_output=True, stdin=subprocess.DEVNULL, timeout=20, check=False)
        works = initrd.PROBE_ANSWER.encode() in probe.stdout
    except subprocess.TimeoutExpired:
        works = False
    for old in cache.glob("kvm-*"):
        old.unlink(missing_ok=True)
    answer.write_text("yes" if works else "no")
    return works


def choose_accel(settings: Settings, image: Image) -> str:
    if settings.accel == "tcg":
        return "tcg"
    works = kvm_works(image, settings.cache)
    if settings.accel == "kvm" and not works:
        raise VmError("VM_ACCEL=kvm, but a guest does not run under /dev/kvm here; cure: VM_ACCEL=auto")
    return "kvm" if works else "tcg"


def _state(pid: int) -> str:
    return re.sub(r"^.*\) ", "", Path(f"/proc/{pid}/stat").read_text())[0]


def pid_of(directory: Path, node: int) -> int | None:
    """The emulator's process, if it is alive and is the one that runs in this folder."""
    try:
        pid = int((directory / f"{name(node)}.pid").read_text())
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        cwd = Path(f"/proc/{pid}/cwd").readlink()
        state = _state(pid)
    except (OSError, ValueError):
        return None
    ours = line[0] == PROGRAM.encode() and name(node).encode() in line and cwd == directory and state != "Z"
    return pid if ours else None


def start(directory: Path, node: int, line: list[str]) -> None:
    """Start it and wait until its control socket answers."""
    log = directory / f"{name(node)}.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            line, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    end = time.monotonic() + 30
    while True:
        if pid_of(directory, node) == process.pid:
            with contextlib.suppress(VmError), qmp.connect(directory / f"{name(node)}.qmp"):
                return
        if process.poll() is not None or time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise VmError(f"{name(node)}: the emulator did not start: {log.read_text().strip()}")
        time.sleep(0.02)


def _holds_anything(pid: int) -> bool:
    """Whether a process still has its files: its command line is gone long before its disks and ports are."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return len(threads) > 1 or _state(pid) not in "ZX"
    except OSError:
        return False


def wait_gone(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while _holds_anything(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def kill(directory: Path, node: int) -> None:
    """Power cut."""
    pid = pid_of(directory, node)
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if not wait_gone(pid, 10):
        raise VmError(f"{name(node)}: process {pid} is still there 10 s after SIGKILL")
