# SPDX-License-Identifier: GPL-3.0-or-later
"""The two nodes together: started, saved, loaded, reached, taken away without a trace."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.vm import guest, qemu, qmp
from testbed.vm.image import Image, ensure, locked, run
from testbed.vm.qemu import Ports
from testbed.vm.settings import NODES, RAILS, USER, Settings, VmError, name

STATE = "state.json"
# The name under which `up` itself keeps a pair that has just booted; `save` takes other names.
BOOT = "boot"


@dataclass(frozen=True)
class State:
    accel: str
    image: str
    ports: dict[int, Ports]
    cut: bool = False


def _free_ports(kind: int, count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody uses now; all held at once, so that no two are the same."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, kind)) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Pair:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.directory = settings.directory

    # State ------------------------------------------------------------------------------------------------------

    def state(self) -> State | None:
        try:
            raw = json.loads((self.directory / STATE).read_text())
        except FileNotFoundError:
            return None
        ports = {int(node): Ports(p["ssh"], tuple(p["fabric"])) for node, p in raw["ports"].items()}
        return State(raw["accel"], raw["image"], ports, raw["cut"])

    def must_state(self) -> State:
        state = self.state()
        if state is None:
            raise VmError(f"no pair in {self.directory}; cure: testbed/vm/vm up")
        return state

    def _write(self, state: State) -> None:
        new = self.directory / f"{STATE}.new"
        new.write_text(json.dumps(asdict(state), indent=1) + "\n")
        new.rename(self.directory / STATE)

    def _lock(self) -> contextlib.AbstractContextManager[None]:
        # Beside the folder, since `down` removes the folder.
        return locked(self.directory.parent / f"{self.directory.name}.lock", 600)

    def running(self) -> list[int]:
        return [node for node in NODES if qemu.pid_of(self.directory, node)]

    def _image(self, state: State) -> Image:
        return Image(self.settings.cache / state.image)

    # Up and down ------------------------------------------------------------------------------------------------

    def up(self, fresh: bool = False, save: bool = False) -> str:
        """Both nodes running and settled: booted, or loaded from a boot that an earlier `up` saved."""
        with self._lock():
            if self.running() == list(NODES):
                return "running already"
            if self.running():
                state = self.must_state()
                self._boot(state, [node for node in NODES if node not in self.running()])
                return "the node that was off is running"
            image = ensure(self.settings.cache)
            accel = qemu.choose_accel(self.settings, image)
            saved = self._saved(image, accel, BOOT)
            load = saved.exists() and not fresh
            state = self._prepare(image, accel, saved if load else None)
            self._boot(state, list(NODES), load)
            if save and not load:
                self._save(state, BOOT)
            return f"{'loaded' if load else 'booted'} with {accel}"

    def _saved(self, image: Image, accel: str, label: str) -> Path:
        return image.folder / f"saved-{qemu.machine_key(self.settings, image, accel)}-{label}"

    def _prepare(self, image: Image, accel: str, saved: Path | None) -> State:
        """A new state folder with disks, keys and ports, in place of whatever an earlier run left."""
        self._remove()
        self.directory.mkdir(mode=0o700, parents=True)
        tcp, udp = _free_ports(socket.SOCK_STREAM, 2), _free_ports(socket.SOCK_DGRAM, 2 * len(RAILS))
        ports = {n: Ports(tcp[n - 1], tuple(udp[(n - 1) * len(RAILS) :][: len(RAILS)])) for n in NODES}
        state = State(accel, image.digest, ports)
        self._write(state)
        if saved:
            for path in saved.iterdir():
                run(["cp", "--preserve=mode", "--sparse=auto", "--reflink=auto", str(path), str(self.directory)], 120)
        else:
            self._make_identities()
            for node in NODES:
                disk = str(self.directory / f"{name(node)}.qcow2")
                run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(image.disk), disk], 60)
        return state

    def _make_identities(self) -> None:
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "dgx-spark-vllm-vm", "-f"]
        mine = self.directory / "id_ed25519"
        run([*keygen, str(mine)], 30)
        known = ""
        for node in NODES:
            key = self.directory / f"{name(node)}.key"
            run([*keygen, str(key)], 30)
            known += f"{name(node)} {key.with_suffix('.key.pub').read_text()}"
            text = guest.identity(node, key.read_text(), mine.with_suffix(".pub").read_text())
            identity = self.directory / f"{name(node)}.identity"
            identity.touch(mode=0o600)
            identity.write_text(text)
            key.unlink()
            key.with_suffix(".key.pub").unlink()
        (self.directory / "known_hosts").write_text(known)

    def _boot(self, state: State, nodes: list[int], load: bool = False) -> None:
        image = self._image(state)
        for node in nodes:
            for suffix in ("pid", "qmp"):
                (self.directory / f"{name(node)}.{suffix}").unlink(missing_ok=True)
            line = qemu.argv(self.settings, image, node, state.ports, state.accel, load)
            qemu.start(self.directory, node, line)
        if state.cut:
            self._set_link(nodes, up=False)
        self._settle(nodes, 0 if load else 1)
        if load:
            for node in nodes:  # the guest's clock stood still
                self.command(node, f"sudo date --utc --set=@{time.time():.2f}")

    def down(self) -> None:
        if not self.directory.exists():
            return
        with self._lock():
            self._remove()
        (self.directory.parent / f"{self.directory.name}.lock").unlink(missing_ok=True)

    def _remove(self) -> None:
        for node in NODES:
            qemu.kill(self.directory, node)
        if self.directory.exists() and any(self.directory.iterdir()) and self.state() is None:
            raise VmError(f"{self.directory} holds no {STATE}: not made by this tool, so not removed")
        shutil.rmtree(self.directory, ignore_errors=True)

    # Single nodes -----------------------------------------------------------------------------------------------

    def reboot(self, node: int) -> None:
        boots = self._boots(node)
        self.command(node, "sudo systemctl reboot", check=False)
        self._settle([node], boots + 1)

    def kill(self, node: int) -> None:
        qemu.kill(self.directory, node)

    def start(self, node: int) -> None:
        with self._lock():
            if node not in self.running():
                self._boot(self.must_state(), [node])

    def cut(self, up: bool) -> None:
        """Pull the cables (both rails, both ends lose carrier), or plug them in again."""
        state = self.must_state()
        self._set_link(self.running(), up)
        self._write(State(state.accel, state.image, state.ports, cut=not up))

    def _set_link(self, nodes: list[int], up: bool) -> None:
        for node in nodes:
            with qmp.connect(self.directory / f"{name(node)}.qmp") as monitor:
                for rail in RAILS:
                    monitor.execute("set_link", name=f"rail{rail.index}", up=up)

    # Saved states -----------------------------------------------------------------------------------------------

    def save(self, label: str) -> None:
        """Keep the running pair as it is now under a name of the caller's."""
        with self._lock():
            state = self.must_state()
            if self.running() != list(NODES):
                raise VmError("both nodes must run to be saved; cure: testbed/vm/vm up")
            self._save(state, label)

    def _save(self, state: State, label: str) -> None:
        for node in NODES:
            pid = qemu.pid_of(self.directory, node)
            with qmp.connect(self.directory / f"{name(node)}.qmp") as monitor:
                monitor.execute("stop")
                monitor.human(f"savevm {qemu.SNAPSHOT}", 300)
                monitor.execute("quit")
            if pid and not qemu.wait_gone(pid, 30):
                raise VmError(f"{name(node)}: the emulator did not end within 30 s")
        image = self._image(state)
        saved = self._saved(image, state.accel, label)
        new = image.folder / f".{saved.name}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        keep = ["id_ed25519", "id_ed25519.pub", "known_hosts"]
        for file in keep + [f"{name(n)}.{kind}" for n in NODES for kind in ("qcow2", "identity")]:
            run(["cp", "--preserve=mode", "--reflink=auto", str(self.directory / file), str(new)], 120)
        shutil.rmtree(saved, ignore_errors=True)
        new.rename(saved)
        self._boot(state, list(NODES), load=True)

    def load(self, label: str) -> None:
        """Throw the running pair away and continue from a saved one."""
        with self._lock():
            image = ensure(self.settings.cache)
            accel = qemu.choose_accel(self.settings, image)
            saved = self._saved(image, accel, label)
            if not saved.exists():
                raise VmError(f"{saved}: nothing saved under that name for this image, emulator and size of machine")
            self._boot(self._prepare(image, accel, saved), list(NODES), load=True)

    # Reaching the nodes -----------------------------------------------------------------------------------------

    def ssh_options(self) -> list[str]:
        known = self.directory / "known_hosts"
        options = [f"UserKnownHostsFile={known}", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "LogLevel=ERROR"]
        return [part for option in options for part in ("-o", option)]

    def ssh(self, node: int, *command: str, connect_s: int = 60) -> list[str]:
        port = self.must_state().ports[node].ssh
        timing = ["-o", f"ConnectTimeout={connect_s}", "-o", "BatchMode=yes", "-o", f"HostKeyAlias={name(node)}"]
        where = ["-i", str(self.directory / "id_ed25519"), "-p", str(port), f"{USER}@127.0.0.1"]
        return ["ssh", *self.ssh_options(), *timing, *where, *command]

    def command(self, node: int, command: str, seconds: float = 60, check: bool = True) -> str:
        try:
            done = subprocess.run(self.ssh(node, command), capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise VmError(f"{name(node)}: `{command}` was not done after {seconds:.0f} s") from None
        if check and done.returncode:
            raise VmError(f"{name(node)}: `{command}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _console(self, node: int) -> str:
        return (self.directory / f"{name(node)}.console").read_text(errors="replace")

    def _boots(self, node: int) -> int:
        """How many boots the node has told its console of since it was powered on."""
        return self._console(node).splitlines().count(guest.READY)

    def _settle(self, nodes: list[int], boots: int) -> None:
        """Wait until every unit of the boot has started, and say what failed where one did not."""
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(lambda node: self._settle_one(node, boots), nodes))

    def _settle_one(self, node: int, boots: int) -> None:
        end = time.monotonic() + self.settings.boot_s
        question = "systemctl is-system-running --wait; systemctl --failed --quiet"
        answer: list[str] = []
        while not answer:
            left = end - time.monotonic()
            if left <= 0 or qemu.pid_of(self.directory, node) is None:
                found = f"not up within {self.settings.boot_s} s" if left <= 0 else "the emulator is gone"
                raise VmError(f"{name(node)}: {found}. Its console:\n{self._console(node)[-1500:]}")
            if self._boots(node) < boots:
                time.sleep(0.2)
                continue
            with contextlib.suppress(VmError):
                answer = self.command(node, question, min(left, 300), check=False).splitlines()
            if not answer:
                time.sleep(1)
        if answer[0] != "running":
            raise VmError(f"{name(node)}: {answer[0]} after boot; failed units:\n" + "\n".join(answer[1:]))
