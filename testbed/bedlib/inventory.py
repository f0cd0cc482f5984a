# SPDX-License-Identifier: GPL-3.0-or-later
"""The bed as an Ansible inventory. Every value is concrete: testinfra does not template."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from .options import USER, Bed, default_directory, load
from .system import BedError


def host_variables(bed: Bed, number: int) -> dict[str, object]:
    return {
        "ansible_host": bed.address(number),
        "ansible_user": USER,
        "ansible_ssh_private_key_file": str(bed.path("id_ed25519")),
        "ansible_ssh_common_args": (
            f"-o UserKnownHostsFile={bed.path('known_hosts')} -o GlobalKnownHostsFile=/dev/null"
            " -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
        ),
    }


def inventory(bed: Bed) -> dict[str, object]:
    hosts = {bed.host(number): host_variables(bed, number) for number in bed.numbers()}
    return {"_meta": {"hostvars": hosts}, "sparks": {"hosts": list(hosts)}}


def existing(directory: Path) -> Bed:
    kept = load(directory)
    if kept is None:
        raise BedError(f"no bed in {directory}; make one with `testbed/bed up` (or set BED_DIR)")
    bed, made = kept
    if not made:
        raise BedError(f"the bed in {directory} is not ready: its `up` is at work or was cut off; run `testbed/bed up`")
    return bed


def main(argv: list[str] | None = None) -> int:
    """inventories/local/bed.py: what Ansible calls with --list or --host NAME."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        bed = existing(default_directory(os.environ))
    except BedError as error:
        print(f"bed: {error}", file=sys.stderr)
        return 1
    if arguments[:1] == ["--host"] and len(arguments) == 2:
        print(json.dumps(host_variables(bed, bed.number(arguments[1]))))
    else:
        print(json.dumps(inventory(bed), indent=2))
    return 0
