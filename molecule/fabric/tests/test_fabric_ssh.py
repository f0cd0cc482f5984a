# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH between nodes over the fabric: the folder can be read, and nothing else can be done."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.bed import nodes

testinfra_hosts = [f"ansible://{nodes.WORKER}"]
CONFIG = f"{nodes.CONFIG}/fabric_ssh/models.conf"
RSYNC = f"rsync -a -e 'ssh -F {CONFIG}'"
SSH = f"ssh -n -F {CONFIG}"
HEAD = f"{os.environ['BED_FABRIC']}.1"
SECOND_RAIL = f"{os.environ['BED_FABRIC'].rpartition('.')[0]}.105.1"
MANAGEMENT = f"{os.environ['BED_NET']}.11"


@pytest.fixture(autouse=True)
def folder(host: Any) -> None:
    head = host.get_host(f"ansible://{nodes.HEAD}", ansible_inventory=host.backend.ansible_runner.inventory_file)
    nodes.out(head, "mkdir -p models/a && echo one > models/a/shard")
    nodes.out(host, "rm -rf got && mkdir got")


@pytest.mark.parametrize("address", [HEAD, SECOND_RAIL])
def test_the_folder_can_be_read_over_each_rail(host: Any, address: str) -> None:
    nodes.out(host, f"{RSYNC} {address}:a/ got/")
    assert nodes.out(host, "cat got/shard") == "one"


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (f"{RSYNC} got/ {HEAD}:a/", "read-only"),
        (f"{RSYNC} {HEAD}:../.ssh/ got/", "do not use .."),
        (f"{RSYNC} {HEAD}:/etc/passwd got/", "No such file"),
        (f"{RSYNC} --rsync-path='id; rsync' {HEAD}:a/ got/", ""),
        (f"{SSH} {HEAD} id", "does not run rsync"),
        (f"{SSH} {HEAD}", ""),
        (f"{SSH} -tt {HEAD}", ""),
        (f"{SSH} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null {MANAGEMENT} id", "Permission denied"),
        (f"{SSH} -o ExitOnForwardFailure=yes -R 9999:localhost:22 {HEAD} id", ""),
        (f"ssh -n -F {CONFIG} {MANAGEMENT} id", "verification failed"),
    ],
)
def test_nothing_else_can_be_done(host: Any, command: str, word: str) -> None:
    # 255 would be taken for a failure of the connection to the node itself.
    done = host.run(f"timeout 20 {command} || (code=$?; [ $code = 255 ] && exit 254; exit $code)")
    assert done.rc not in (0, 124), done.stdout
    assert word in done.stderr
    assert "uid=" not in done.stdout + done.stderr


def test_private_keys_are_their_owners(host: Any) -> None:
    key = host.file(f"{nodes.CONFIG}/fabric_ssh/models")
    assert (key.user, oct(key.mode)) == ("spark", "0o600")
    assert host.file("/home/spark/.ssh/authorized_keys").mode == 0o600
