# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Keys with which nodes read a folder of each other over the fabric, and may do nothing else.

A key opens one folder, for reading, by rsync, from the peer's fabric addresses: sshd's `restrict`, `from=` and a forced
`rrsync -ro`, which comes with rsync.
"""

# Programs and tests call this as well, without Ansible's module object.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RRSYNC = "/usr/bin/rrsync"
NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_PUBLIC = re.compile(r"(?:ssh-|ecdsa-)[a-z0-9@.-]+ [A-Za-z0-9+/=]+")


class KeyFault(Exception):  # noqa: N818
    """A key cannot be made or used; the message says which, why, and what to do."""


def public_part(text: str) -> str:
    """Type and key of a public key file, without the comment; KeyFault for anything else."""
    match = _PUBLIC.match(text.strip())
    if not match:
        raise KeyFault(f"not a public key: {text.strip()[:60]!r}")
    return match[0]


def host_keys(folder: Path) -> list[str]:
    """The public host keys of this node's sshd, which every user may read."""
    return [public_part(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("ssh_host_*_key.pub"))]


def known_hosts(peers: Mapping[str, Mapping[str, Any]], port: int) -> str:
    """Lines for every peer's fabric addresses; peers: name to {addresses, host_keys}."""
    lines = []
    for name in sorted(peers):
        places = [place if port == 22 else f"[{place}]:{port}" for place in peers[name]["addresses"]]
        lines += [f"{','.join(places)} {key}\n" for key in peers[name]["host_keys"] if places]
    return "".join(lines)


def client_config(folder: str, name: str, user: str, port: int) -> str:
    """What `ssh -F` reads: the one key, the known peers, no questions."""
    options = {
        "User": user,
        "Port": port,
        "IdentityFile": f'"{folder}/{name}"',
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": f'"{folder}/known_hosts"',
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        # The cipher that a CPU with AES instructions is fastest at.
        "Ciphers": "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com",
        "Compression": "no",
        "ConnectTimeout": 10,
        "ServerAliveInterval": 10,
        "ServerAliveCountMax": 3,
    }
    return "Host *\n" + "".join(f"  {key} {value}\n" for key, value in options.items())


def authorized_lines(peers: Mapping[str, Mapping[str, Any]], roots: Mapping[str, str]) -> str:
    """Lines for authorized_keys: one for each peer and folder; peers: name to {addresses, public_keys}."""
    lines = []
    for peer in sorted(peers):
        places = ",".join(peers[peer]["addresses"])
        for name, root in sorted(roots.items()):
            key = peers[peer]["public_keys"].get(name)
            if key and places:
                # sshd takes \" for a quote and leaves other backslashes; the user's shell takes the rest apart.
                command = f"{RRSYNC} -ro {shlex.quote(root)}".replace('"', '\\"')
                lines.append(f'restrict,from="{places}",command="{command}" {key} fabric:{name}@{peer}')
    return "\n".join(lines)


def check_names(roots: Mapping[str, str]) -> None:
    """KeyFault for names that are no file names and folders that are not absolute."""
    for name, root in roots.items():
        if not NAME.fullmatch(name) or name == "known_hosts":
            raise KeyFault(f"fabric_ssh_roots: name {name!r}: expected lower-case letters, digits, - and _")
        if not root.startswith("/") or "\n" in root or ".." in root.split("/") or root.rstrip("/") == "":
            raise KeyFault(f"fabric_ssh_roots.{name}: found {root!r}, expected the absolute path of a folder below /")


def missing_keys(folder: Path, names: Sequence[str]) -> list[str]:
    """The keys of which a half, or both, is not there."""
    return [name for name in names if not (folder / name).is_file() or not (folder / f"{name}.pub").is_file()]


def make_key(folder: Path, name: str, comment: str) -> None:
    """Make one key pair, whole or not at all: a half that a killed run left behind is replaced."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (folder / name, folder / f"{name}.pub", folder / f".{name}", folder / f".{name}.pub"):
        path.unlink(missing_ok=True)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(folder / f".{name}")]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise KeyFault(f"ssh-keygen: {error.strerror}; install the package openssh-client") from None
    if done.returncode:
        raise KeyFault(f"ssh-keygen in {folder}: {(done.stderr or done.stdout).strip()}")
    (folder / f".{name}").rename(folder / name)
    (folder / f".{name}.pub").rename(folder / f"{name}.pub")


BEGIN, END = "# BEGIN dgx_spark.vllm fabric_ssh", "# END dgx_spark.vllm fabric_ssh"


def with_block(text: str, lines: str) -> str:
    """authorized_keys with our block holding these lines, or without a block where there are none."""
    kept, inside = [], False
    for line in text.splitlines():
        inside = inside or line == BEGIN
        if not inside:
            kept.append(line)
        inside = inside and line != END
    if inside:
        raise KeyFault(f"authorized_keys: {BEGIN!r} has no {END!r}; mend the file by hand")
    block = [BEGIN, *lines.splitlines(), END] if lines else []
    return "".join(f"{line}\n" for line in kept + block)


def files(params: Mapping[str, Any], authorized: str) -> list[dict[str, str]]:
    """The files of one node, as `_file_set.parse` takes them. `authorized` is the text of authorized_keys now."""
    folder, peers, present = params["folder"], params["peers"], params["state"] == "present"
    lines = authorized_lines(peers, params["roots"]) if present else ""
    text = with_block(authorized, lines)
    result = []
    if text != authorized:
        result.append({"path": params["authorized_keys"], "content": text, "mode": "0600"})
    names = sorted(params["roots"])
    if present:
        result.append(_file(f"{folder}/known_hosts", known_hosts(peers, params["port"])))
        for name in names:
            config = client_config(folder, name, params["user"], params["port"])
            result.append(_file(f"{folder}/{name}.conf", config))
    else:
        gone = ["known_hosts", *names, *(f"{name}.pub" for name in names), *(f"{name}.conf" for name in names)]
        result += [{"path": f"{folder}/{name}", "state": "absent"} for name in gone]
    return result


def _file(path: str, content: str) -> dict[str, str]:
    return {"path": path, "content": content, "mode": "0600"}
