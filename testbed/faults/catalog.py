"""The faults: how each is put on, how it ends, and what has to come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .nodes import Cluster

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


def _kill(where: str, pattern: str, signal: str = "KILL") -> Act:
    """A signal to the processes of one node whose command begins so."""

    def act(cluster: Cluster) -> None:
        node = getattr(cluster, where)
        node.signal(signal, node.pids(pattern))

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
    cluster.head.run("fallocate -l 100T /dev/shm/filler 2>/dev/null || dd if=/dev/zero of=/dev/shm/filler bs=1M", False)
    _server(cluster)


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


def _clock_back(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.run("sudo date -s '-1 hour'", check=False)


FAULTS = (
    Fault("server", "SIGKILL of the server", _server),
    Fault("core", "SIGKILL of the engine core", _kill("head", "VLLM::EngineCore"), in_ci=True),
    Fault("rank-worker", "SIGKILL of the worker's rank", _kill("worker", "ray::RayWorkerProc")),
    Fault("rank-head", "SIGKILL of the head's rank", _kill("head", "ray::RayWorkerProc")),
    Fault("raylet-worker", "SIGKILL of the worker's raylet", _kill("worker", "[^ ]*/raylet ")),
    Fault("raylet-head", "SIGKILL of the head's raylet", _kill("head", "[^ ]*/raylet "), notice_s=40),
    Fault("gcs", "SIGKILL of GCS", _kill("head", "[^ ]*/gcs_server "), notice_s=45, in_ci=True),
    Fault(
        "frozen", "SIGSTOP of the worker's rank", _kill("worker", "ray::RayWorkerProc", "STOP"), notice_s=90, in_ci=True
    ),
    Fault("cable-5", "fabric cable cut for 5 s", lambda c: c.tool("cut", "2"), lambda c: c.tool("heal", "2"), 5,
          (0, 0), in_ci=True),
    Fault("cable-60", "fabric cable cut for 60 s", lambda c: c.tool("cut", "2"), lambda c: c.tool("heal", "2"), 60,
          (0, 1), notice_s=75),
    Fault("shm-full", "/dev/shm of the head full when the server dies", _fill_shm,
          lambda c: c.head.run("rm -f /dev/shm/filler"), 20, (1, 3), notice_s=30),
    Fault("port-8000", "port 8000 taken by another program for 20 s", _take_port(8000), _drop_thief, 20, in_ci=True),
    Fault("port-6379", "port 6379 taken by another program for 20 s", _take_port(6379), _drop_thief, 20, notice_s=60),
    Fault("reboot-worker", "reboot of the worker", _reboot("2"), notice_s=40),
    Fault("reboot-head", "reboot of the head", _reboot("1"), notice_s=40),
    Fault("reboot-both", "reboot of both nodes", _reboot("1", "2"), notice_s=40, in_ci=True),
    Fault("power-worker", "power cut of the worker", _power_cut("2"), notice_s=45),
    Fault("power-head", "power cut of the head", _power_cut("1"), notice_s=45),
    Fault("head-late", "power cut of both, the head back 60 s after the worker", _head_late,
          lambda c: c.tool("start", "1"), 60, notice_s=40),
    Fault("logout", "logout of all sessions, with linger", lambda c: c.head.run("true"), lasts_s=15, restarts=(0, 0)),
    Fault("clock", "clock of both nodes set back by an hour", _clock_back, restarts=(0, 0)),
)  # fmt: skip


def chosen(names: str) -> list[Fault]:
    """The faults of a comma separated list; `ci` for those of CI, `all` for all."""
    if names in ("ci", "all"):
        return [fault for fault in FAULTS if fault.in_ci or names == "all"]
    wanted = names.split(",")
    if unknown := sorted(set(wanted) - {fault.name for fault in FAULTS}):
        raise ValueError(f"unknown fault {', '.join(unknown)}; known are {', '.join(fault.name for fault in FAULTS)}")
    return [fault for fault in FAULTS if fault.name in wanted]
