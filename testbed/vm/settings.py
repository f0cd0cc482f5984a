# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pair of VMs is made of: names, addresses, sizes, places and time limits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USER = "spark"
NODES = (1, 2)
MTU = 9000
# What a port of the real machine reports; the links themselves carry what loopback and the emulator give.
SPEED_MBPS = 200_000


class VmError(Exception):
    """A fault with its cure, printed as one message."""


@dataclass(frozen=True)
class Rail:
    """One cable between the nodes: a network device with a soft-RoCE device on it."""

    index: int
    netdev: str
    device: str
    subnet: str

    def address(self, node: int) -> str:
        return f"{self.subnet}.{node}"

    def mac(self, node: int) -> str:
        return f"52:54:00:5a:{self.index + 2:02x}:{node:02x}"


# The two halves ("twins") of QSFP port 1 of a DGX Spark.
RAILS = (
    Rail(0, "enp1s0f1np1", "rocep1s0f1", "192.168.100"),
    Rail(1, "enP2p1s0f1np1", "roceP2p1s0f1", "192.168.101"),
)
MANAGEMENT_NETDEV = "enP7s7"
# Where SSH comes from, as the nodes see it.
CONTROLLER = "10.0.2.2"


def management_mac(node: int) -> str:
    return f"52:54:00:5a:01:{node:02x}"


def name(node: int) -> str:
    return f"spark-{node:02d}"


def number(text: str) -> int:
    """A node as a person names it: 1 or spark-01."""
    for node in NODES:
        if text in (str(node), name(node)):
            return node
    raise VmError(f"{text}: expected one of {', '.join(name(node) for node in NODES)}, or its number")


def _cache_default() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dgx-spark-vllm" / "vm"


@dataclass(frozen=True)
class Settings:
    """Choices of a caller; everything else is fixed."""

    directory: Path
    cache: Path
    # Taken from the machine only as the guest touches it (about 0.6 GiB); a card's budget wants to see some room.
    memory_mib: int = 1536
    cpus: int = 1
    accel: str = "auto"
    # How long a node may take from power on to a system that has started all its units. A boot costs about 40 s of
    # a processor under pure emulation, which on a starved machine is many minutes.
    boot_s: int = 600

    @classmethod
    def from_environment(cls, directory: str | None = None) -> Settings:
        env = os.environ
        accel = env.get("VM_ACCEL", "auto")
        if accel not in ("auto", "kvm", "tcg"):
            raise VmError(f"VM_ACCEL={accel}: expected auto, kvm or tcg")
        return cls(
            directory=Path(directory or env.get("VM_DIR") or ROOT / ".vm").absolute(),
            cache=Path(env.get("VM_CACHE") or _cache_default()).absolute(),
            memory_mib=_number("VM_MEMORY", cls.memory_mib, 512),
            cpus=_number("VM_CPUS", cls.cpus, 1),
            accel=accel,
            boot_s=_number("VM_BOOT_S", cls.boot_s, 10),
        )


def _number(variable: str, default: int, least: int) -> int:
    text = os.environ.get(variable, str(default))
    if not text.isdecimal() or int(text) < least:
        raise VmError(f"{variable}={text}: expected a whole number of at least {least}")
    return int(text)
