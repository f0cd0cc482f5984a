# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that make a Debian tree a node: names, network, soft-RoCE, a quick and quiet boot."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from testbed.vm.settings import CONTROLLER, MANAGEMENT_NETDEV, MTU, NODES, RAILS, USER, Rail, management_mac, name

# Needs a network, a console or a second kernel feature that these nodes have not; each costs seconds under emulation.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "dpkg-db-backup.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty.target",
    "ldconfig.service",
    "modprobe@configfs.service",
    "modprobe@dm_mod.service",
    "modprobe@drm.service",
    "modprobe@efi_pstore.service",
    "modprobe@fuse.service",
    "modprobe@loop.service",
    "proc-sys-fs-binfmt_misc.automount",
    "rdma-ndd.service",
    "serial-getty@ttyS0.service",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-network-generator.service",
    "systemd-networkd-persistent-storage.service",
    "systemd-networkd-wait-online.service",
    "systemd-pstore.service",
    "systemd-udev-load-credentials.service",
    "systemd-update-done.service",
)


@dataclass(frozen=True)
class File:
    text: str
    mode: int = 0o644


def _link(mac: str, netdev: str, mtu: int) -> File:
    return File(f"[Match]\nMACAddress={mac}\n[Link]\nName={netdev}\nMTUBytes={mtu}\n")


def _rail_network(rail: Rail, node: int) -> File:
    # The file is chosen by MAC, so that one image serves every node. An address that a test takes away stays away:
    # networkd does not put it back while the carrier stands.
    return File(
        f"[Match]\nMACAddress={rail.mac(node)}\n"
        f"[Network]\nAddress={rail.address(node)}/24\nConfigureWithoutCarrier=yes\nLinkLocalAddressing=ipv6\n"
        "IPv6AcceptRA=no\n"
    )


def _management_network() -> File:
    # What the emulator's own network gives its guest and takes for itself. An address alone, with all else behind a
    # gateway, as hosters give it: so that a more specific network elsewhere can take the way back from SSH.
    return File(
        f"[Match]\nName={MANAGEMENT_NETDEV}\n"
        "[Network]\nAddress=10.0.2.15/32\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
        f"[Route]\nGateway={CONTROLLER}\nGatewayOnLink=yes\n"
    )


# What a node writes to its console when its boot is done. To ask over SSH instead would slow the boot that one waits
# for: under emulation each key exchange costs the guest a second or two.
READY = "vm-ready"


def _ready_unit() -> File:
    return File(
        "[Unit]\nDescription=Tell the console that the boot is done\nAfter=multi-user.target\n"
        f"[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo {READY} > /dev/ttyS0'\n"
        "[Install]\nWantedBy=graphical.target\n"
    )


def _rxe_unit(rail: Rail) -> File:
    device = f"sys-subsystem-net-devices-{rail.netdev}.device"
    return File(
        f"[Unit]\nDescription=Soft-RoCE device {rail.device} on {rail.netdev}\n"
        f"BindsTo={device}\nAfter={device}\n"
        "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        f"ExecStart=/usr/bin/rdma link add {rail.device} type rxe netdev {rail.netdev}\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def rxe_unit_name(rail: Rail) -> str:
    return f"rxe-{rail.device}.service"


def files() -> dict[str, File]:
    """Path below the root of the tree -> content, the same for every node."""
    network = "etc/systemd/network"
    tree = {
        "etc/fstab": File("/dev/vda / ext4 defaults,noatime 0 1\n"),
        f"etc/sudoers.d/{USER}": File(f"{USER} ALL=(ALL) NOPASSWD:ALL\n", 0o440),
        "etc/modules-load.d/rxe.conf": File("rdma_rxe\n"),
        # Only what a node here is made of: for the rest of the emulated board udev would load drivers, half of a boot.
        "etc/systemd/system/systemd-udev-trigger.service.d/vm.conf": File(
            "[Service]\nExecStart=\n"
            "ExecStart=-udevadm trigger --type=all --action=add --subsystem-match=virtio --subsystem-match=net "
            "--subsystem-match=block --subsystem-match=infiniband\n"
        ),
        # rdma-core would load the storage protocols too.
        "etc/rdma/modules/rdma.conf": File("rdma_ucm\n"),
        # rdma-core would rename soft-RoCE devices; the real machine's names are what is wanted.
        "etc/udev/rules.d/60-rdma-persistent-naming.rules": File(""),
        "etc/ssh/sshd_config.d/vm.conf": File(
            "HostKey /etc/ssh/ssh_host_ed25519_key\nPasswordAuthentication no\nPrintMotd no\nUseDNS no\n"
        ),
        f"{network}/20-management.network": _management_network(),
    }
    for node in NODES:
        tree[f"{network}/10-management-{node}.link"] = _link(management_mac(node), MANAGEMENT_NETDEV, 1500)
        for rail in RAILS:
            tree[f"{network}/10-{rail.netdev}-{node}.link"] = _link(rail.mac(node), rail.netdev, MTU)
            tree[f"{network}/20-{rail.netdev}-{node}.network"] = _rail_network(rail, node)
    tree["etc/systemd/system/vm-ready.service"] = _ready_unit()
    for rail in RAILS:
        tree[f"etc/systemd/system/{rxe_unit_name(rail)}"] = _rxe_unit(rail)
    return tree


def identity(node: int, host_key: str, authorized_key: str) -> str:
    """What makes the common image this one node, as a systemd credential for the firmware's table.

    It travels as tmpfiles.d lines: written at each boot before anything listens, and kept out of the cached image.
    """
    hosts = f"127.0.0.1 localhost\n127.0.1.1 {name(node)}\n"
    home = f"/home/{USER}"
    lines = [
        _line("/etc/hostname", "0644", "root", f"{name(node)}\n"),
        _line("/etc/hosts", "0644", "root", hosts),
        _line("/etc/ssh/ssh_host_ed25519_key", "0600", "root", host_key),
        f"d {home}/.ssh 0700 {USER} {USER} -",
        _line(f"{home}/.ssh/authorized_keys", "0600", USER, authorized_key),
    ]
    encoded = base64.b64encode(("\n".join(lines) + "\n").encode()).decode()
    return f"io.systemd.credential.binary:tmpfiles.extra={encoded}"


def _line(path: str, mode: str, owner: str, content: str) -> str:
    return f"f+~ {path} {mode} {owner} {owner} - {base64.b64encode(content.encode()).decode()}"
