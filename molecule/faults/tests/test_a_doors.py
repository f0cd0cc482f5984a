# SPDX-License-Identifier: GPL-3.0-or-later
"""Doors and secrets of a deployment that serves."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from testbed.faults.nodes import Cluster, Node

CANARIES = ("canary-key-8c1f4e", "canary-second-9d27b0", "canary-token-51be73")
OPEN = {22, 8000}


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=2):
            return True
    except OSError:
        return False


def test_only_what_the_inventory_opened_answers(cluster: Cluster) -> None:
    """Asked from this machine, a third network namespace. Every port that anything listens on is tried."""
    for node in cluster.nodes:
        lines = node.run("ss -Htln").splitlines()
        ports = {int(line.split()[3].rpartition(":")[2]) for line in lines}
        assert {6380, 22} <= ports, "Ray does not listen here, so this test would show nothing"
        with ThreadPoolExecutor(32) as pool:
            address = cluster.addresses[node.name]
            answers = pool.map(_answers, [address] * len(ports), ports)
            found = {port for port, yes in zip(ports, answers, strict=True) if yes}
        assert found <= OPEN, (node.name, sorted(found - OPEN))


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/v1/models", "", 401),
        ("/v1/models", "wrong", 401),
        ("/v1/models", CANARIES[0], 200),
        ("/v1/models", CANARIES[1], 200),
        ("/tokenize", "", 401),
        ("/metrics", "", 401),
        ("/openapi.json", "", 401),
        ("/health", "", 200),
    ],
)
def test_every_path_needs_a_key(cluster: Cluster, path: str, key: str, status: int) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"http://{cluster.addresses[cluster.head.name]}:8000{path}", headers=headers)
    try:
        found = urllib.request.urlopen(request, timeout=20).status
    except urllib.error.HTTPError as err:
        found = err.code
    assert found == status


SEARCH = """
cd /
for folder in /proc/[0-9]*; do
    [ "$folder" = "/proc/$$" ] && continue
    if grep -qsaF -- "$1$2" "$folder/cmdline" "$folder/environ"; then
        echo "$folder $(tr '\\0' ' ' < "$folder/cmdline" | cut -c1-80)"
    fi
done
journalctl --no-pager -o cat | grep -aF -- "$1$2" | head -n 3
grep -rlaF -- "$1$2" /etc/systemd /home/spark/.config/systemd /tmp /run/user /var/log 2>/dev/null | head
true
"""


def _hits(node: Node, canary: str) -> list[str]:
    """Where a secret is found among arguments, environments, journals and units of the whole node."""
    # In two parts, so that the search does not find itself.
    return node.run(f"sudo bash -s {canary[:6]} {canary[6:]}", timeout=120, given=SEARCH).splitlines()


def test_no_secret_is_seen_outside_its_file(cluster: Cluster) -> None:
    for node in cluster.nodes:
        assert node.run("sudo grep -c . /home/spark/.config/dgx-spark-vllm/ray.token").strip() == "1"
        for canary in CANARIES:
            assert _hits(node, canary) == [], (node.name, canary[:7])


def test_secrets_are_readable_by_their_user_alone(cluster: Cluster) -> None:
    modes = cluster.head.run("cd .config/dgx-spark-vllm && stat -c '%a %n' ray.token api.keys api.env .").split("\n")
    assert modes[:4] == ["600 ray.token", "600 api.keys", "600 api.env", "700 ."]


def test_a_canary_would_be_found(cluster: Cluster) -> None:
    """The search itself: something planted is found."""
    cluster.head.run("systemd-run --user --quiet --unit planted sleep 120 planted-canary-77")
    cluster.head.run("true")
    try:
        assert any("sleep 120" in line for line in _hits(cluster.head, "planted-canary-77"))
    finally:
        cluster.head.run("systemctl --user stop planted", check=False)
