# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware of a node as data: RoCE devices with their GID tables, link attributes, what the GPU tools print. Pure.

`files()` gives the text of every file below DIR/fixtures/HOST; tests edit them there. Node 1 and node 2 differ in the
index of the right GID (3 and 5) on purpose: that is what a pair of Sparks looks like after a few link flaps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .options import Bed


@dataclass(frozen=True)
class Function:
    """One PCIe function of a QSFP port: an RDMA device and its network device."""

    device: str
    netdev: str
    pci: str
    port: int
    twin: int


FUNCTIONS = (
    Function("rocep1s0f1", "enp1s0f1np1", "0000:01:00.1", 1, 0),
    Function("roceP2p1s0f1", "enP2p1s0f1np1", "0002:01:00.1", 1, 1),
    Function("rocep1s0f0", "enp1s0f0np0", "0000:01:00.0", 0, 0),
    Function("roceP2p1s0f0", "enP2p1s0f0np0", "0002:01:00.0", 0, 1),
)
# What a port says with and without a link.
PORT_UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "200 Gb/sec (4X HDR)"}
PORT_DOWN = {"state": "1: DOWN", "phys_state": "3: Disabled", "rate": "40 Gb/sec (4X QDR)"}
V1, V2 = "IB/RoCE v1", "RoCE v2"
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
SLOTS = 16
# Slots of the address's v1 and v2 rows: tables T2 (index 3) and T3 (index 5, behind a second pair of fe80 rows).
FIRST_ROW = {2: 4}
DEFAULT_FIRST_ROW = 2


@dataclass(frozen=True)
class Port:
    """A port as sysfs shows it; rows are slot → (type, gid)."""

    function: Function
    active: bool
    guid: str
    rows: dict[int, tuple[str, str]] = field(default_factory=dict)


def mac(number: int, function: int) -> str:
    """Address of a node's fabric interface: locally administered, so that it is nobody's."""
    return f"4e:bb:47:00:{number:02x}:{0x10 + function:02x}"


def eui64(address: str) -> str:
    """The interface identifier that the kernel makes of a MAC, as four groups of four digits."""
    octets = [int(part, 16) for part in address.split(":")]
    octets = [octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]]
    return ":".join(f"{octets[i]:02x}{octets[i + 1]:02x}" for i in range(0, 8, 2))


def link_local(address: str) -> str:
    return f"fe80:0000:0000:0000:{eui64(address)}"


def mapped(ipv4: str) -> str:
    """IPv4 as the kernel writes it into a GID."""
    a, b, c, d = (int(part) for part in ipv4.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def gid_rows(number: int, address: str, hardware: str) -> dict[int, tuple[str, str]]:
    """Rows of an active port: link-local pairs first, then the address as v1 and v2."""
    start = FIRST_ROW.get(number, DEFAULT_FIRST_ROW)
    rows: dict[int, tuple[str, str]] = {}
    for pair in range(0, start, 2):
        # A second link-local pair is what a stacked device (VLAN, bridge) leaves behind: other identifier, same prefix.
        gid = link_local(hardware if pair == 0 else hardware[:-2] + "ff")
        rows[pair], rows[pair + 1] = (V1, gid), (V2, gid)
    rows[start], rows[start + 1] = (V1, mapped(address)), (V2, mapped(address))
    return rows


def ports(bed: Bed, number: int) -> list[Port]:
    """The four functions of a Spark: the cable is in port 1, and a twin is active where it has an address."""
    found = []
    for index, function in enumerate(FUNCTIONS):
        active = function.port == 1 and function.twin < bed.rails
        hardware = mac(number, index)
        rows = gid_rows(number, bed.fabric_address(number, function.twin), hardware) if active else {}
        found.append(Port(function, active, eui64(hardware), rows))
    return found


def port_files(port: Port) -> dict[str, str]:
    """sysfs of one RDMA device, relative to class/infiniband."""
    function = port.function
    base, device, sub = function.device, f"{function.device}/device", f"{function.device}/ports/1"
    table = {
        f"{base}/node_type": "1: CA",
        f"{base}/node_guid": port.guid,
        f"{base}/sys_image_guid": port.guid,
        f"{base}/fw_ver": "28.45.4028",
        f"{base}/hca_type": "MT4129",
        f"{base}/board_id": "NVD0000000087",
        f"{device}/vendor": "0x15b3",
        f"{device}/device": "0x1021",
        f"{device}/uevent": f"DRIVER=mlx5_core\nPCI_SLOT_NAME={function.pci}",
        f"{device}/numa_node": "-1",
        f"{device}/current_link_speed": "32.0 GT/s PCIe",
        f"{device}/current_link_width": "4",
        f"{device}/max_link_speed": "32.0 GT/s PCIe",
        f"{device}/max_link_width": "4",
        f"{device}/net/{function.netdev}/ifindex": "0",
        **{f"{sub}/{name}": text for name, text in (PORT_UP if port.active else PORT_DOWN).items()},
        f"{sub}/link_layer": "Ethernet",
        f"{sub}/lid": "0x0",
        f"{sub}/cap_mask": "0x04010000",
    }
    for slot in range(SLOTS):
        kind, gid = port.rows.get(slot, ("", ZERO))
        table[f"{sub}/gids/{slot}"] = gid
        # The kernel answers EINVAL for the attributes of an empty slot; a plain file cannot, so there is none.
        if kind:
            table[f"{sub}/gid_attrs/types/{slot}"] = kind
            table[f"{sub}/gid_attrs/ndevs/{slot}"] = function.netdev
    return table


def gpu_files() -> dict[str, str]:
    """What the driver's and the toolkit's programs print on a GB10: unified memory is not the driver's to report."""
    fields = {
        "index": "0",
        "name": "NVIDIA GB10",
        "count": "1",
        "uuid": "GPU-5fd2a1c4-6b0e-4d6e-9a55-0c1d3c1f7e21",
        "driver_version": "580.95.05",
        "vbios_version": "9A.0B.25.00.20",
        "compute_cap": "12.1",
        "memory.total": "[N/A]",
        "memory.used": "[N/A]",
        "memory.free": "[N/A]",
        "utilization.gpu": "0 %",
        "utilization.memory": "0 %",
        "temperature.gpu": "38",
        "power.draw": "4.10 W",
        "power.limit": "[N/A]",
        "clocks.sm": "208 MHz",
        "clocks.max.sm": "3003 MHz",
        "pstate": "P8",
        "persistence_mode": "Enabled",
        "compute_mode": "Default",
        "pci.bus_id": "0000000F:01:00.0",
        "pcie.link.gen.current": "1",
        "pcie.link.width.current": "1",
        "clocks_throttle_reasons.active": "0x0000000000000001",
        "ecc.mode.current": "[N/A]",
    }
    screen = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |
| N/A   38C    P8              4W /  N/A  | Not Supported          |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+"""
    nvcc = """\
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Tue_May_27_02:21:03_PDT_2025
Cuda compilation tools, release 12.9, V12.9.86
Build cuda_12.9.r12.9/compiler.36037853_0"""
    return {
        "gpu/fields": "\n".join(f"{name}={value}" for name, value in fields.items()),
        "gpu/nvidia-smi.txt": screen,
        "gpu/list.txt": f"GPU 0: NVIDIA GB10 (UUID: {fields['uuid']})",
        "cuda/nvcc.txt": nvcc,
    }


def files(bed: Bed, number: int) -> dict[str, str]:
    """Every file of a node's fixture folder: relative path → text with its last newline."""
    table = gpu_files()
    for port in ports(bed, number):
        table.update({f"class/infiniband/{path}": text for path, text in port_files(port).items()})
        if port.active:
            table[f"net/{port.function.netdev}/speed"] = "200000"
    return {path: f"{text}\n" for path, text in sorted(table.items())}
