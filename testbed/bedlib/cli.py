# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: verbs and options. A value comes from the option, a variable, the bed's own notes or a default."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import cable, inventory, lifecycle, node, snapshots, status
from .options import Bed, cache_directory, default_directory, load
from .system import BedError, install_packages, require_root, say

OPTIONS = {
    "prefix": "BED_PREFIX",
    "nodes": "BED_NODES",
    "net": "BED_NET",
    "fabric": "BED_FABRIC",
    "rails": "BED_RAILS",
    "distro": "BED_DISTRO",
}
NUMBERS = ("nodes", "rails")
# Verbs that change the machine. The others read, and run as anybody.
ROOT_VERBS = ("up", "down", "reboot", "kill", "start", "stop", "cut", "heal", "save", "forget", "deps", "_keep")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="bed", description="Real systemd nodes on this machine, to test against.")
    top.add_argument("--dir", help="folder of the bed (BED_DIR; default: .bed in the checkout)")
    top.add_argument("--prefix", help="prefix of everything the bed makes (BED_PREFIX; default: spark)")
    top.add_argument("--nodes", type=int, help="how many nodes, 1 to 8 (BED_NODES; default: 2)")
    top.add_argument("--net", help="management network, three numbers (BED_NET; default: 10.123.45)")
    top.add_argument("--fabric", help="fabric network, three numbers (BED_FABRIC; default: 192.168.100)")
    top.add_argument("--rails", type=int, help="fabric functions with an address, 1 or 2 (BED_RAILS; default: 1)")
    top.add_argument("--distro", help="trixie (Debian 13) or noble (Ubuntu 24.04) (BED_DISTRO; default: trixie)")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=text, description=text)

    def on_node(name: str, text: str) -> argparse.ArgumentParser:
        sub = verb(name, text)
        sub.add_argument("node", nargs="+", help="1, 2 … or spark-01 …")
        return sub

    verb("up", "Make the nodes and wait for logins; power on what is off; nothing if all is well.").add_argument(
        "--from", dest="origin", help="start from a snapshot made by `save`"
    )
    verb("down", "Remove everything the bed made.")
    on_node("reboot", "Reboot from inside and wait for a login.")
    on_node("kill", "Power cut: cables dead, every process killed.")
    on_node("start", "Power on and wait for a login.")
    on_node("stop", "Shut down cleanly.")
    on_node("cut", "Pull the fabric cable: no carrier.").add_argument(
        "--silent", action="store_true", help="keep the carrier and pass nothing"
    )
    on_node("heal", "Plug the fabric cable in again.")
    ssh = verb("ssh", "Log in, or run a command.")
    ssh.add_argument("node")
    ssh.add_argument("command", nargs=argparse.REMAINDER)
    verb("status", "Power, boot state and cable of every node.").add_argument("--json", action="store_true")
    logs = verb("logs", "A node's journal (over SSH, or from its disk when it is off).")
    logs.add_argument("node")
    logs.add_argument("--console", action="store_true", help="what the node printed while booting")
    logs.add_argument("arguments", nargs=argparse.REMAINDER, help="further arguments for journalctl")
    verb("inventory", "The nodes as an Ansible inventory.").add_argument("--json", action="store_true")
    save = verb("save", "Keep the nodes' state as a snapshot that other beds start from (stops and starts the nodes).")
    save.add_argument("name")
    save.add_argument("--replace", action="store_true", help="make an existing one anew")
    saved = verb("saved", "List snapshots; with a name: exit status 0 if `up --from NAME` would work.")
    saved.add_argument("name", nargs="?")
    verb("forget", "Delete a snapshot.").add_argument("name")
    verb("deps", "Install the system packages that are missing, saying which.")
    verbs.add_parser("_keep").add_argument("node")
    return top


def wanted(arguments: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, object]:
    """Options that were given, on the command line or else by a variable."""
    found: dict[str, object] = {}
    for name, variable in OPTIONS.items():
        value = getattr(arguments, name)
        if value is None and environ.get(variable):
            value = environ[variable]
            if name in NUMBERS:
                if not value.isdigit():
                    raise BedError(f"{variable}={value!r}: expected a number")
                value = int(value)
        if value is not None:
            found[name] = value
    if getattr(arguments, "origin", None):
        found["origin"] = arguments.origin
    return found


def resolve(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Bed:
    """The bed that is meant. One that exists keeps its options: others, asked for by name, are an error."""
    directory = Path(arguments.dir).absolute() if arguments.dir else default_directory(environ)
    given = wanted(arguments, environ)
    kept = load(directory)
    if kept is None:
        return Bed(directory=directory, **given)  # type: ignore[arg-type]
    bed = kept[0]
    # Variables are defaults for making a bed; only what is typed must fit one that exists.
    asked = given if arguments.verb == "up" else wanted(arguments, {})
    other = {name: value for name, value in asked.items() if value != getattr(bed, name)}
    if other:
        lines = ", ".join(f"{name} is {getattr(bed, name)!r}, not {value!r}" for name, value in other.items())
        raise BedError(f"the bed in {directory} was made with other options ({lines}); take it down first")
    return bed


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    # A layer's top folder is a node's /: it must be readable whatever the caller's umask is.
    os.umask(0o022)
    try:
        if arguments.verb in ROOT_VERBS:
            require_root(arguments.verb)
        return dispatch(arguments)
    except BedError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def dispatch(arguments: argparse.Namespace) -> int:
    verb = arguments.verb
    bed = resolve(arguments, os.environ)
    if verb == "deps":
        install_packages(bed.distro)
    elif verb == "up":
        lifecycle.up(bed, cache_directory(os.environ))
    elif verb == "down":
        lifecycle.down(bed, cache_directory(os.environ))
    elif verb == "saved":
        return snapshots.show(bed, cache_directory(os.environ), arguments.name)
    elif verb == "forget":
        snapshots.forget(cache_directory(os.environ), arguments.name)
    elif verb == "_keep":
        return node.keep(bed, bed.number(arguments.node))
    else:
        return on_existing(verb, inventory.existing(bed.directory), arguments)
    return 0


def on_existing(verb: str, bed: Bed, arguments: argparse.Namespace) -> int:
    if verb == "inventory":
        print(json.dumps(inventory.inventory(bed), indent=2))
    elif verb == "status":
        return status.show(bed, arguments.json)
    elif verb == "logs":
        return status.logs(bed, bed.number(arguments.node), arguments.console, arguments.arguments)
    elif verb == "ssh":
        return subprocess.call(node.ssh_argv(bed, bed.number(arguments.node), *arguments.command))
    elif verb == "save":
        with lifecycle.bed_lock(bed.prefix):
            lifecycle.save(bed, cache_directory(os.environ), arguments.name, arguments.replace)
    else:
        with lifecycle.bed_lock(bed.prefix):
            change(verb, bed, [bed.number(name) for name in arguments.node], arguments)
    return 0


def change(verb: str, bed: Bed, numbers: list[int], arguments: argparse.Namespace) -> None:
    if verb == "cut":
        for number in numbers:
            bed.node_path(number, "cut").write_text("silent" if arguments.silent else "carrier")
        cable.plug(bed)
    elif verb == "heal":
        for number in numbers:
            bed.node_path(number, "cut").unlink(missing_ok=True)
        cable.plug(bed)
    elif verb == "start":
        for number in numbers:
            node.start(bed, number)
        lifecycle.each(bed, numbers, node.wait_ssh)
    else:
        work = {"reboot": node.reboot, "kill": node.kill, "stop": node.stop}[verb]
        lifecycle.each(bed, numbers, work)
    say(f"{verb}: {', '.join(bed.host(number) for number in numbers)}")
