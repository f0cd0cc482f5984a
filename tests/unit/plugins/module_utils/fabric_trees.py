# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes sysfs trees out of a few lines of text, so that a table of the field is a test of one line.

A tree's text has a line for each port and, below it, its rows:

    rocep1s0f1 enp1s0f1np1 ACTIVE
      0 v1 fe80:1, 3 v2 192.168.100.1, 5 v2 192.168.100.1 [enp1s0f1np1.100]

A row whose type is `?` has a GID but refuses to tell its type; `6 empty` is a slot that holds nothing.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _roce_read
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce_ip import ZERO, mapped_gid
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce_types import Facts

TYPES = {"v1": "IB/RoCE v1", "v2": "RoCE v2"}
ROW = re.compile(r"(?P<index>\d+) (?P<type>v1|v2|\?|empty)(?: (?P<gid>\S+?))?(?: \[(?P<netdev>\S+)\])?$")
STATES = {"ACTIVE": "4: ACTIVE", "DOWN": "1: DOWN", "INIT": "2: INIT"}


def gid(text: str) -> str:
    """A GID as sysfs writes it: of an IPv4 address, or of `fe80:1` and `2001:db8:1` with zeros between."""
    if "." in text:
        return mapped_gid(text)
    if text == "zero":
        return ZERO
    groups = text.split(":")
    head, tail = groups[:-1], groups[-1:]
    return ":".join(f"{int(group or '0', 16):04x}" for group in [*head, *["0"] * (8 - len(groups)), *tail])


def put(path: Path, text: str) -> None:
    """A file as sysfs has it, with its last newline."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def tree(root: Path, text: str, slots: int = 8, **link: Any) -> Path:
    """Write the sysfs tree; `link` overrides what the interfaces say (mtu, speed, carrier) and the PCIe width."""
    base = root / "sys/class/infiniband"
    base.mkdir(parents=True, exist_ok=True)
    port, netdev = Path(), ""
    for line in text.strip().splitlines():
        if ROW.match(line.strip().split(",")[0]):
            for entry in line.split(","):
                _put_row(port, netdev, entry.strip())
            continue
        device, netdev, state = line.split()
        port = base / device / "ports/1"
        put(port / "state", STATES[state])
        put(port / "link_layer", str(link.get("link_layer", "Ethernet")))
        put(port / "rate", f"{link.get('rate', 200)} Gb/sec (4X HDR)")
        put(base / device / "device/current_link_width", str(link.get("width", 4)))
        put(base / device / "device/max_link_width", str(link.get("max_width", 4)))
        (base / device / "device/net" / netdev).mkdir(parents=True, exist_ok=True)
        for slot in range(slots):
            put(port / "gids" / str(slot), ZERO)
        interface(root, netdev, carrier=str(link.get("carrier", int(state == "ACTIVE"))), mtu=link.get("mtu", 9000))
    return root


def _put_row(port: Path, netdev: str, text: str) -> None:
    row = ROW.match(text)
    assert row, text
    index = row["index"]
    put(port / "gids" / index, gid(row["gid"] or "zero"))
    if row["type"] in TYPES:
        put(port / "gid_attrs/types" / index, TYPES[row["type"]])
    if row["type"] != "empty":
        put(port / "gid_attrs/ndevs" / index, row["netdev"] or netdev)


def interface(
    root: Path, name: str, carrier: str = "1", mtu: int = 9000, speed: str = "200000", kind: str = ""
) -> None:
    """A network interface's folder; kind is what DEVTYPE says."""
    base = root / "sys/class/net" / name
    put(base / "carrier", carrier)
    put(base / "mtu", str(mtu))
    put(base / "operstate", "up" if carrier == "1" else "down")
    put(base / "speed", speed)
    put(base / "uevent", f"DEVTYPE={kind}\nINTERFACE={name}" if kind else f"INTERFACE={name}")


def addresses(root: Path, entries: Mapping[str, list[str]]) -> Path:
    """What `ip -j address` would print: interface to addresses such as `192.168.100.1/24` (a `dynamic` may follow)."""
    links = []
    for name, values in entries.items():
        info = []
        for number, value in enumerate(values):
            place, _space, flag = value.partition(" ")
            local, _slash, prefix = place.partition("/")
            entry: dict[str, Any] = {"family": "inet", "local": local, "prefixlen": int(prefix)}
            info.append(entry | ({"dynamic": True} if flag else {}) | ({"secondary": True} if number else {}))
        links.append({"ifname": name, "addr_info": info})
    capture = root / _roce_read.CAPTURED_ADDRESSES
    # A program may be waiting and reading meanwhile.
    whole = capture.with_suffix(".new")
    whole.write_text(json.dumps(links), encoding="utf-8")
    whole.replace(capture)
    return root


def refusing(code: int, *names: str) -> Callable[[str], str]:
    """A reader that answers as the kernel does: slots that hold nothing, and files of these names, refuse."""

    def reader(path: str) -> str:
        refuses = any(path.endswith(name) for name in names)
        if not refuses and "/gid_attrs/" in path:
            slot = re.sub(r"gid_attrs/(types|ndevs)", "gids", path)
            refuses = _roce_read.read_file(slot) == ZERO
        if refuses:
            raise OSError(code, "refused", path)
        return _roce_read.read_file(path)

    return reader


def facts(root: Path, code: int = errno.EINVAL) -> Facts:
    """The tree's facts, read as from a kernel whose empty slots answer with that error."""
    return _roce_read.read(str(root), refusing(code))


PAIR = """
rocep1s0f1 {one} ACTIVE
  0 v1 fe80:1, 1 v2 fe80:1, 2 v1 192.168.100.{host}, {index} v2 192.168.100.{host}
roceP2p1s0f1 {two} ACTIVE
  0 v1 fe80:2, 1 v2 fe80:2, 2 v1 192.168.101.{host}, {index} v2 192.168.101.{host}
"""


def spark(root: Path, host: int, index: int = 3, rails: int = 2, **link: Any) -> Facts:
    """A Spark with a cable in port 1: both twins, or only the first with an address."""
    one, two = "enp1s0f1np1", "enP2p1s0f1np1"
    text = PAIR.format(one=one, two=two, host=host, index=index)
    if rails == 1:
        text = text.rpartition("  0 v1 fe80:2")[0] + "  0 v1 fe80:2, 1 v2 fe80:2"
    tree(root, text, **link)
    entries = {one: [f"192.168.100.{host}/24"], two: [f"192.168.101.{host}/24"][: rails - 1]}
    interface(root, "enP7s7", mtu=1500, speed="10000")
    interface(root, "docker0", mtu=1500, kind="bridge")
    addresses(root, entries | {"lo": ["127.0.0.1/8"], "enP7s7": [f"10.0.0.{host}/24"], "docker0": ["172.17.0.1/16"]})
    return facts(root)
