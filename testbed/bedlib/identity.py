# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a node itself and lets this machine log in: keys, names, known hosts, SSH configuration, fixtures."""

from __future__ import annotations

from pathlib import Path

from . import fixtures, layers
from .options import UID, USER, Bed
from .system import give_to_caller, run

KEY = "id_ed25519"
HOST_KEY = "etc/ssh/ssh_host_ed25519_key"


def hosts_file(bed: Bed, number: int) -> str:
    """sudo wants the own name; the neighbours' names are their management addresses, as a site's DNS has them."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"127.0.1.1 {bed.host(number)}"]
    lines += [f"{bed.address(other)} {bed.host(other)}" for other in bed.numbers() if other != number]
    return "\n".join(lines) + "\n"


def ssh_config(bed: Bed) -> str:
    blocks = []
    for number in bed.numbers():
        blocks.append(
            f"Host {bed.host(number)} {bed.address(number)}\n"
            f"    HostName {bed.address(number)}\n"
            f"    User {USER}\n"
            f'    IdentityFile "{bed.path(KEY)}"\n'
            "    IdentitiesOnly yes\n"
            f'    UserKnownHostsFile "{bed.path("known_hosts")}"\n'
            "    GlobalKnownHostsFile /dev/null\n"
            "    StrictHostKeyChecking yes\n"
            "    ControlPath none\n"
            "    LogLevel ERROR\n"
        )
    return "\n".join(blocks)


def known_hosts(bed: Bed) -> str:
    lines = []
    for number in bed.numbers():
        key = layers.topmost(bed, number, f"{HOST_KEY}.pub").read_text().split()
        lines.append(f"{bed.address(number)},{bed.host(number)} {key[0]} {key[1]}\n")
    return "".join(lines)


def keygen(path: Path, comment: str) -> None:
    path.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def write_identity(bed: Bed, number: int) -> None:
    """Into the node's upper layer, which is not mounted yet."""
    upper = bed.node_path(number, "upper")
    for folder in ("etc/ssh", f"home/{USER}/.ssh"):
        (upper / folder).mkdir(parents=True, exist_ok=True)
    (upper / "etc/hostname").write_text(bed.host(number) + "\n")
    (upper / "etc/hosts").write_text(hosts_file(bed, number))
    # Empty: systemd makes one at the first boot, each node its own.
    (upper / "etc/machine-id").write_text("")
    # A snapshot brings its own, which its nodes know each other by.
    if len(layers.lower_of(bed, number)) == 1:
        keygen(upper / HOST_KEY, bed.host(number))
    authorized = upper / f"home/{USER}/.ssh/authorized_keys"
    authorized.write_text(bed.path(f"{KEY}.pub").read_text())
    run(["chown", "-R", f"{UID}:{UID}", str(upper / "home" / USER)])
    (upper / "home" / USER).chmod(0o750)
    authorized.parent.chmod(0o700)
    authorized.chmod(0o600)


def write_fixtures(bed: Bed, number: int) -> None:
    for path, text in fixtures.files(bed, number).items():
        target = bed.fixture_path(number, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def write_access(bed: Bed) -> None:
    """What a client needs; handed to the caller of sudo."""
    bed.path("known_hosts").write_text(known_hosts(bed))
    bed.path("ssh_config").write_text(ssh_config(bed))
    give_to_caller(*(bed.path(name) for name in (KEY, f"{KEY}.pub", "known_hosts", "ssh_config", "fixtures")))
