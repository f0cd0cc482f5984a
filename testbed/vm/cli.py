# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of the pair of VMs."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from typing import Any

from testbed.vm import image, qemu
from testbed.vm.pair import Pair
from testbed.vm.settings import NODES, RAILS, USER, Settings, VmError, name, number

ENVIRONMENT = """\
environment: VM_DIR (state folder, default .vm in the checkout), VM_CACHE (images), VM_ACCEL (auto, kvm, tcg),
VM_MEMORY (MiB a node), VM_CPUS (a node), VM_BOOT_S (longest boot)"""


def _deps(pair: Pair, args: argparse.Namespace) -> None:
    missing = image.missing_programs()
    if not missing:
        print("all there")
        return
    root = [] if os.geteuid() == 0 else ["sudo"]
    update = [*root, "apt-get", "update", "-q"]
    install = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-qy", "--no-install-recommends"]
    print(f"missing: {' '.join(missing)}; installing with apt: {' '.join(image.HOST_PACKAGES)}", flush=True)
    for line in (update, [*install, *image.HOST_PACKAGES]):
        print("+ " + shlex.join(line), flush=True)
        if code := subprocess.run(line, timeout=900, check=False).returncode:
            raise VmError(f"{line[-1]}: apt-get ended with {code}")


def _build(pair: Pair, args: argparse.Namespace) -> None:
    print(image.ensure(pair.settings.cache, rebuild=args.force).folder)


def _up(pair: Pair, args: argparse.Namespace) -> None:
    begin = time.monotonic()
    print(f"{pair.up(args.fresh, args.save)}, {time.monotonic() - begin:.1f} s")


def _down(pair: Pair, args: argparse.Namespace) -> None:
    pair.down()


def _ssh(pair: Pair, args: argparse.Namespace) -> None:
    line = pair.ssh(number(args.node), *args.command)
    os.execvp(line[0], line)


def _reboot(pair: Pair, args: argparse.Namespace) -> None:
    pair.reboot(number(args.node))


def _kill(pair: Pair, args: argparse.Namespace) -> None:
    pair.kill(number(args.node))


def _start(pair: Pair, args: argparse.Namespace) -> None:
    pair.start(number(args.node))


def _cut(pair: Pair, args: argparse.Namespace) -> None:
    pair.cut(up=False)


def _heal(pair: Pair, args: argparse.Namespace) -> None:
    pair.cut(up=True)


def _label(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,30}", text):
        raise VmError(f"{text!r}: expected a name of small letters, digits, - and _")
    return text


def _save(pair: Pair, args: argparse.Namespace) -> None:
    pair.save(_label(args.name))


def _load(pair: Pair, args: argparse.Namespace) -> None:
    pair.load(_label(args.name))


def _status(pair: Pair, args: argparse.Namespace) -> None:
    state = pair.state()
    rows: list[dict[str, Any]] = []
    for node in NODES if state else ():
        pid = qemu.pid_of(pair.directory, node)
        system = "off"
        if pid:
            try:
                system = pair.command(node, "systemctl is-system-running", 30, check=False) or "no answer"
            except VmError:
                system = "no answer"
        addresses = [rail.address(node) for rail in RAILS]
        assert state is not None
        port = state.ports[node].ssh
        rows.append({"node": name(node), "pid": pid, "system": system, "ssh_port": port, "addresses": addresses})
    if args.json:
        print(json.dumps({"directory": str(pair.directory), "accel": state and state.accel, "nodes": rows}))
        return
    if state is None:
        print(f"no pair in {pair.directory}")
        return
    print(f"{pair.directory}: {state.accel}, cable {'cut' if state.cut else 'plugged in'}")
    for row in rows:
        where = f"127.0.0.1:{row['ssh_port']}"
        print(f"{row['node']}  {row['system']:10}  pid {row['pid'] or '-'}  {where}  {' '.join(row['addresses'])}")


def _alias(pair: Pair, node: int) -> list[str]:
    # One connection for Ansible and testinfra: under emulation a key exchange takes a second or two.
    control = pair.directory / f"ssh-{name(node)}"
    shared = ["-o", f"ControlPath={control}"] if len(str(control)) < 90 else []
    return ["-o", f"HostKeyAlias={name(node)}", *shared]


def inventory(pair: Pair) -> dict[str, Any]:
    """The pair as an Ansible inventory; without hosts while there is no pair."""
    state = pair.state()
    variables: dict[str, Any] = {
        name(node): {
            "ansible_host": "127.0.0.1",
            "ansible_port": ports.ssh,
            "ansible_user": USER,
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(pair.directory / "id_ed25519"),
            "ansible_ssh_common_args": shlex.join([*pair.ssh_options(), *_alias(pair, node)]),
        }
        for node, ports in (state.ports if state else {}).items()
    }
    return {"sparks": {"hosts": list(variables)}, "_meta": {"hostvars": variables}}


def _inventory(pair: Pair, args: argparse.Namespace) -> None:
    whole = inventory(pair)
    print(json.dumps(whole["_meta"]["hostvars"].get(args.host, {}) if args.host else whole, indent=1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vm",
        description="A pair of VMs with a kernel of their own and soft-RoCE between them.",
        epilog=ENVIRONMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dir", help="state folder (VM_DIR, default .vm in the checkout)")
    verbs = parser.add_subparsers(dest="verb", required=True)

    def verb(word: str, what: Any, text: str, node: bool = False) -> argparse.ArgumentParser:
        one = verbs.add_parser(word, help=text, description=text)
        one.set_defaults(what=what)
        if node:
            one.add_argument("node")
        return one

    verb("deps", _deps, "install with apt what this machine lacks")
    verb("build", _build, "make the image if the cache has none").add_argument("--force", action="store_true")
    up = verb("up", _up, "start both nodes; loads a boot that was saved by `up --save`")
    up.add_argument("--fresh", action="store_true", help="boot even so")
    up.add_argument("--save", action="store_true", help="after a boot keep it, so that the next up takes seconds")
    verb("down", _down, "end both nodes and remove all of them but the image")
    verb("ssh", _ssh, "a shell or a command on a node", True).add_argument("command", nargs=argparse.REMAINDER)
    verb("status", _status, "what runs").add_argument("--json", action="store_true")
    listing = verb("inventory", _inventory, "Ansible inventory as JSON")
    listing.add_argument("--list", action="store_true", help="all hosts (the default)")
    listing.add_argument("--host", help="one host's variables")
    verb("reboot", _reboot, "reboot a node and wait for it", True)
    verb("kill", _kill, "power cut", True)
    verb("start", _start, "power on again", True)
    verb("cut", _cut, "pull the cables between the nodes")
    verb("heal", _heal, "plug them in again")
    verb("save", _save, "keep the running pair under a name").add_argument("name")
    verb("load", _load, "put a saved pair in place of the running one").add_argument("name")
    return parser


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        args.what(Pair(Settings.from_environment(args.dir)), args)
    except VmError as error:
        print(f"vm: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    return 0
