"""The faults: how each is put on, how it ends, and what has to come of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .nodes import STATE, Cluster, FaultError

Act = Callable[[Cluster], object]


def nothing(_: Cluster) -> None:
    """The fault ends by itself."""


@dataclass(frozen=True)
class Fault:
    """One fault. `notice_s` is how long it may take until anything can know of it, by Ray's or our own limits."""

    name: str
    title: str
    put_on: Act
    take_off: Act = nothing
    lasts_s: float = 0.0
    # one restart, no restart, or either, where a fault may or may not reach the server
    restarts: tuple[int, int] = (1, 1)
    notice_s: float = 10.0
    in_ci: bool = False
    # Whether not one request may be lost.
    lossless: bool = False
    # What must hold in the end besides; a text says what does not.
    proof: Callable[[Cluster], str] = lambda _: ""


def _kill(where: str, pattern: str = "", signal: str = "KILL") -> Act:
    """A signal to the processes of one node whose command begins so; by default its ranks."""

    def act(cluster: Cluster) -> None:
        node = getattr(cluster, where)
        node.signal(signal, node.pids(pattern or cluster.rank))

    return act


def _server(cluster: Cluster) -> None:
    cluster.head.signal("KILL", [cluster.head.main_pid("vllm-serve")])


def _take_port(port: int) -> Act:
    """Kill who has the port and take it before the unit comes again, as a stranger would who was quicker."""
    unit = "vllm-serve" if port == 8000 else "vllm-ray-head"
    program = (
        "import socket,time; s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "for _ in range(200):\n"
        f" try: s.bind(('0.0.0.0', {port})); break\n"
        " except OSError: time.sleep(0.05)\n"
        "s.listen(); time.sleep(600)"
    )

    def act(cluster: Cluster) -> None:
        head = cluster.head
        head.run(f'systemd-run --user --quiet --unit port-thief /usr/bin/python3 -c "{program}"')
        head.signal("KILL", [head.main_pid(unit)])

    return act


def _drop_thief(cluster: Cluster) -> None:
    cluster.head.run("systemctl --user stop port-thief")


def _fill_shm(cluster: Cluster) -> None:
    """Made small first: to fill half of the machine's memory would be another fault."""
    _server(cluster)
    cluster.head.run(
        "sudo mount -o remount,size=$(( $(df --output=used -k /dev/shm | tail -1) + 65536 ))k /dev/shm; "
        "dd if=/dev/zero of=/dev/shm/filler bs=1M 2>/dev/null",
        check=False,
    )


def _free_shm(cluster: Cluster) -> None:
    cluster.head.run("rm -f /dev/shm/filler; sudo mount -o remount,size=50% /dev/shm")


def _reboot(*numbers: str) -> Act:
    return lambda cluster: cluster.tool("reboot", *numbers)


def _power_cut(*numbers: str) -> Act:
    def act(cluster: Cluster) -> None:
        cluster.tool("kill", *numbers)
        cluster.tool("start", *numbers)

    return act


def _head_late(cluster: Cluster) -> None:
    """Both nodes lose power; the worker comes back a minute before the head."""
    cluster.tool("kill", "1", "2")
    cluster.tool("start", "2")


def _logout(cluster: Cluster) -> None:
    """All sessions of the user end, also the one that this is said in."""
    end = (
        "loginctl --no-legend list-sessions | grep -w spark | while read id _; do loginctl terminate-session $id; done"
    )
    cluster.head.run(f"sudo systemd-run --quiet /bin/sh -c '{end}'", check=False)


def _logout_without_linger(cluster: Cluster) -> None:
    """The user's systemd ends with the last session, and all units with it; the next login would start it again."""
    end = "loginctl disable-linger spark; loginctl terminate-user spark"
    cluster.head.run(f"sudo systemd-run --quiet /bin/sh -c '{end}'", check=False)


def _fill_disk(cluster: Cluster) -> None:
    """The disk under what the units write down is full, and the server dies."""
    cluster.head.run(f"cp -a {STATE} /tmp/state && sudo mount -t tmpfs -o size=8M,uid=1000,mode=0700 tmpfs {STATE}")
    cluster.head.run(f"cp -a /tmp/state/. {STATE} && dd if=/dev/zero of={STATE}/filler bs=64k 2>/dev/null", check=False)
    _server(cluster)


def _free_disk(cluster: Cluster) -> None:
    cluster.head.run(f"sudo umount -l {STATE}; rm -rf /tmp/state")


def _told_of_the_disk(cluster: Cluster) -> str:
    """The journal says that the start could not be written down; the engine started all the same."""
    told = cluster.head.run(
        "journalctl -q --user-unit=vllm-serve -o cat --since=-10min | grep -c 'No space left'", False
    )
    return "" if int(told or 0) else "the journal does not tell of the full disk"


def _move_gid(cluster: Cluster) -> None:
    """The kernel gives the worker's addresses another slot, and its raylet dies, so that the unit starts anew."""
    for port in (cluster.bed / "fixtures" / cluster.worker.name / "class/infiniband").glob("*/ports/1"):
        slots = gid_slots(port)
        if slots is None:
            continue
        old, new = slots
        (port / "gids" / new).write_text((port / "gids" / old).read_text())
        (port / "gids" / old).write_text("0000:" * 7 + "0000\n")
        for table in ("gid_attrs/types", "gid_attrs/ndevs"):
            (port / table / old).rename(port / table / new)
    cluster.worker.signal("KILL", cluster.worker.pids("[^ ]*/raylet "))


def gid_slots(port: Path) -> tuple[str, str] | None:
    """The slot of a port's RoCE v2 address for IPv4, and an empty one; None for a port without such an address."""
    tables = {gid.name: gid.read_text() for gid in (port / "gids").iterdir()}
    types = {slot: port / "gid_attrs/types" / slot for slot in tables}
    routed = [slot for slot, gid in tables.items()
              if ":ffff:" in gid and types[slot].exists() and "v2" in types[slot].read_text()]  # fmt: skip
    free = [slot for slot, gid in tables.items() if not gid.replace(":", "").strip("0\n") and not types[slot].exists()]
    return (min(routed, key=int), max(free, key=int)) if routed else None


def _moved(cluster: Cluster) -> str:
    """The status tells the move, and the raylet that runs has the new index."""
    node = cluster.worker
    rail = json.loads(node.run(f"cat {STATE}/fabric.json"))["rails"][0]
    has = node.run("tr '\\0' '\\n' < /proc/$(pgrep -o -f '^[^ ]*/raylet ')/environ | grep ^NCCL_IB_GID_INDEX=").strip()
    if not rail["moved"] or rail["moved"]["to"] != rail["gid_index"]:
        return f"the status tells no move: {rail}"
    return "" if has.endswith(f"={rail['gid_index']}") else f"raylet has {has}, the table says {rail['gid_index']}"


def _bad_card(cluster: Cluster) -> None:
    """A run with a card that has two faults: it has to name both and touch nothing."""
    with tempfile.TemporaryDirectory() as folder:
        card = Path(folder, "broken.toml")
        card.write_text('extends = "dgx-spark--Laguna-Chain-Tiny"\n[serve]\nmax_num_seq = 4\ndtype = "bfloat"\n')
        done = cluster.play("site.yml", "-e", f"model_card={card}")
    if not done.status or "max_num_seq" not in done.output or "bfloat" not in done.output:
        raise FaultError(f"the broken card was not refused with both faults:\n{done.output[-2000:]}")


def _site(cluster: Cluster) -> None:
    """The site's own run finds everything as it should be."""
    done = cluster.play("site.yml")
    if done.status or done.changed:
        raise FaultError(f"site.yml on what serves: exit {done.status}, changed={done.changed}:\n{done.output[-3000:]}")


FAULTS = (
    Fault("server", "SIGKILL of the server", _server),
    Fault("core", "SIGKILL of the engine core", _kill("head", "VLLM::EngineCore")),
    Fault("rank-worker", "SIGKILL of the worker's rank", _kill("worker")),
    Fault("rank-head", "SIGKILL of the head's rank", _kill("head")),
    Fault("raylet-worker", "SIGKILL of the worker's raylet", _kill("worker", "[^ ]*/raylet ")),
    Fault("raylet-head", "SIGKILL of the head's raylet", _kill("head", "[^ ]*/raylet "), notice_s=40),
    Fault("gcs", "SIGKILL of GCS", _kill("head", "[^ ]*/gcs_server "), notice_s=45),
    Fault(
        "frozen", "SIGSTOP of the worker's rank", _kill("worker", signal="STOP"), notice_s=90, in_ci=True
    ),
    Fault("cable-5", "fabric cable cut for 5 s", lambda c: c.tool("cut", "2"), lambda c: c.tool("heal", "2"), 5,
          (0, 0), in_ci=True),
    Fault("cable-60", "fabric cable cut for 60 s", lambda c: c.tool("cut", "2"), lambda c: c.tool("heal", "2"), 60,
          (0, 1), notice_s=75),
    Fault("shm-full", "/dev/shm of the head full when the server dies", _fill_shm,
          _free_shm, 20, (1, 3), notice_s=30),
    Fault("port-8000", "port 8000 taken by another program for 20 s", _take_port(8000), _drop_thief, 20),
    Fault("port-6379", "port 6379 taken by another program for 20 s", _take_port(6379), _drop_thief, 20, notice_s=60),
    Fault("reboot-worker", "reboot of the worker", _reboot("2"), notice_s=40),
    Fault("reboot-head", "reboot of the head", _reboot("1"), notice_s=40),
    Fault("reboot-both", "reboot of both nodes", _reboot("1", "2"), notice_s=40, in_ci=True),
    Fault("power-worker", "power cut of the worker", _power_cut("2"), notice_s=45),
    Fault("power-head", "power cut of the head", _power_cut("1"), notice_s=45),
    Fault("head-late", "power cut of both, the head back 60 s after the worker", _head_late,
          lambda c: c.tool("start", "1"), 60, notice_s=40),
    Fault("gid-moved", "GID index moved, and the worker's raylet killed", _move_gid, proof=_moved),
    # The restart is not in the history: there was no room for it.
    Fault("disk-full", "the head's disk full when the server dies", _fill_disk, _free_disk, 20, (0, 3), notice_s=30,
          proof=_told_of_the_disk),
    Fault("logout", "logout of all sessions, with linger", _logout, lasts_s=15, restarts=(0, 0)),
    Fault("no-linger", "logout of all sessions, without linger, which comes back after 20 s", _logout_without_linger,
          lambda c: c.head.run("sudo loginctl enable-linger spark"), 20, (1, 2), notice_s=60),
    Fault("bad-card", "site.yml with a broken card", _bad_card, restarts=(0, 0), lossless=True),
    Fault("site", "site.yml with nothing to do", _site, restarts=(0, 0), lossless=True, in_ci=True),
)  # fmt: skip


def chosen(names: str) -> list[Fault]:
    """The faults of a comma separated list; `ci` for those of CI, `all` for all."""
    if names in ("ci", "all"):
        return [fault for fault in FAULTS if fault.in_ci or names == "all"]
    wanted = names.split(",")
    if unknown := sorted(set(wanted) - {fault.name for fault in FAULTS}):
        raise ValueError(f"unknown fault {', '.join(unknown)}; known are {', '.join(fault.name for fault in FAULTS)}")
    return [fault for fault in FAULTS if fault.name in wanted]
