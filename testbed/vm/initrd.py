# SPDX-License-Identifier: GPL-3.0-or-later
"""A small initial RAM disk: busybox, the modules of the root disk, and one script.

Debian's kernel has its disk driver and ext4 as modules. The distribution's own initrd takes seconds to unpack under
emulation and a quarter of a minute to build; this one holds five files.
"""

from __future__ import annotations

import lzma
from pathlib import Path

MODULES = ("virtio_blk", "ext4", "crc32c_generic")
PROBE_ARGUMENT = "vm-probe"
PROBE_ANSWER = "GUEST-RUNS"

# Every wait is bounded: a guest without its disk says so and stops (panic=-1 would turn an exit into endless boots).
INIT = f"""#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
case " $(/bin/busybox cat /proc/cmdline) " in
*" {PROBE_ARGUMENT} "*) echo {PROBE_ANSWER}; /bin/busybox poweroff -f;;
esac
while read -r m; do /bin/busybox insmod "/modules/$m"; done < /modules/order
n=0
until [ -b /dev/vda ]; do
  n=$((n + 1))
  [ $n -lt 200 ] || {{ echo "no root disk after 20 s"; /bin/busybox poweroff -f; }}
  /bin/busybox usleep 100000
done
/bin/busybox mount -t ext4 -o noatime /dev/vda /root || {{ echo "root disk not mounted"; /bin/busybox poweroff -f; }}
/bin/busybox mount --move /dev /root/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /root /usr/lib/systemd/systemd
"""


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".ko", 1)[0].replace("-", "_")


def load_order(dependencies: str, wanted: tuple[str, ...]) -> list[str]:
    """Paths of the wanted modules and all they need, in the order to load them.

    `dependencies` is the text of modules.dep: `path: needs…`, where what is needed first stands last.
    """
    needs: dict[str, list[str]] = {}
    by_name: dict[str, str] = {}
    for line in dependencies.splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
        by_name[_stem(path)] = path
    order: list[str] = []
    for module in wanted:
        if module not in by_name:
            continue  # built into this kernel
        for path in [*reversed(needs[by_name[module]]), by_name[module]]:
            if path not in order:
                order.append(path)
    return order


def _entry(path: str, mode: int, data: bytes, inode: int) -> bytes:
    """One member of a cpio archive in the "newc" format the kernel unpacks."""
    raw = path.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + raw
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def archive(members: list[tuple[str, int, bytes]]) -> bytes:
    body = b"".join(_entry(path, mode, data, number) for number, (path, mode, data) in enumerate(members, 1))
    return body + _entry("TRAILER!!!", 0, b"", 0)


def build(tree: Path, version: str) -> bytes:
    """The archive for the kernel `version` installed in `tree`."""
    modules = tree / "usr/lib/modules" / version
    order = load_order((modules / "modules.dep").read_text(), MODULES)
    folder, program, script = 0o040755, 0o100755, 0o100644
    members: list[tuple[str, int, bytes]] = [(d, folder, b"") for d in ("bin", "dev", "proc", "root", "modules")]
    members.append(("init", program, INIT.encode()))
    members.append(("bin/busybox", program, (tree / "usr/bin/busybox").read_bytes()))
    for path in order:
        data = (modules / path).read_bytes()
        members.append((f"modules/{_stem(path)}.ko", script, lzma.decompress(data) if path.endswith(".xz") else data))
    members.append(("modules/order", script, "".join(f"{_stem(path)}.ko\n" for path in order).encode()))
    return archive(members)
