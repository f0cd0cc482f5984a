# SPDX-License-Identifier: GPL-3.0-or-later
"""What a start finds on real nodes: rails from two host names, an index that drifts, a cable that is cut at boot."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bed import nodes, plays

testinfra_hosts = [f"ansible://{nodes.WORKER}"]
UNIT = "fabric-probe.service"
FABRIC_ENV = f"{nodes.STATE}/bin/fabric-env"
CTL = f"{nodes.USER_BUS} systemctl --user"
FABRIC = os.environ["BED_FABRIC"]
FIXTURES = Path(os.environ["BED_DIR"], "fixtures")
TABLES = FIXTURES / nodes.WORKER / "class/infiniband"
DEVICES = ("rocep1s0f1", "roceP2p1s0f1")


def bed(*arguments: str) -> None:
    subprocess.run([str(nodes.ROOT / "testbed/bed"), *arguments], check=True, timeout=120)


def shown(host: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(host.run(f"{FABRIC_ENV} show --json").stdout)
    return found


def environment(host: Any) -> dict[str, str]:
    """The environment of the running command, which `sleep` says by its name that it has become."""
    pid = nodes.unit_property(host, UNIT, "MainPID")
    nodes.wait_for("the command", 30, lambda: nodes.out(host, f"cat /proc/{pid}/comm") == "sleep")
    return nodes.environment_of(host, UNIT)


def move(node: str, old: int, new: int) -> None:
    """The kernel gives the node's addresses another slot: an edit of its sysfs data."""
    for device in DEVICES:
        port = FIXTURES / node / "class/infiniband" / device / "ports/1"
        (port / "gids" / str(new)).write_text((port / "gids" / str(old)).read_text())
        (port / "gids" / str(old)).write_text("0000:" * 7 + "0000\n")
        for name in ("gid_attrs/types", "gid_attrs/ndevs"):
            (port / name / str(old)).rename(port / name / str(new))


@pytest.fixture
def cable() -> Iterator[None]:
    yield
    bed("heal", nodes.HEAD, nodes.WORKER)


@pytest.fixture
def head(host: Any) -> Any:
    return host.get_host(f"ansible://{nodes.HEAD}", ansible_inventory=host.backend.ansible_runner.inventory_file)


def test_two_host_names_are_enough(host: Any) -> None:
    variables = host.backend.get_variables()
    assert not [name for name in variables if "fabric" in name or "rail" in name or "gid" in name]
    found = environment(host)
    assert found["NCCL_IB_HCA"] == "=rocep1s0f1:1,roceP2p1s0f1:1"
    assert found["NCCL_IB_GID_INDEX"] == "5"
    assert found["VLLM_HOST_IP"] == f"{FABRIC}.2"
    assert found["NCCL_NET"] == "IB"
    assert found["GLOO_SOCKET_IFNAME"] == "enp1s0f1np1"


def test_a_start_with_nothing_to_wait_for_takes_under_60_ms(host: Any) -> None:
    # The least of some tries: what else the machine does is no fault of the program.
    program = (
        "import subprocess, time\n"
        "def once():\n"
        "  begin = time.perf_counter()\n"
        f"  subprocess.run(['{FABRIC_ENV}', '--state', '/tmp/start.json', 'run', '--', 'true'], check=True)\n"
        "  return 1000 * (time.perf_counter() - begin)\n"
        "print(min(once() for _ in range(11)))"
    )
    assert float(nodes.out(host, f'python3 -c "{program}" 2>/dev/null')) < 60


def test_a_host_name_of_127_0_1_1_has_no_effect(host: Any) -> None:
    assert nodes.out(host, "getent hosts $(hostname)").startswith("127.0.1.1")
    assert environment(host)["VLLM_HOST_IP"] == f"{FABRIC}.2"


def test_every_peer_is_reached_as_an_ordinary_user_with_whole_packets(host: Any) -> None:
    found = json.loads(nodes.out(host, f"{FABRIC_ENV} check --json"))
    assert [(entry["reached"], entry["mtu"]) for entry in found] == [(True, 9000), (True, 9000)]
    assert {entry["method"] for entry in found} == {"ping -M do -s 8972"}
    # Where a user may not ping, a datagram does the same.
    nodes.out(host, "sudo chmod 700 /usr/bin/ping")
    try:
        found = json.loads(nodes.out(host, f"{FABRIC_ENV} check --json"))
    finally:
        nodes.out(host, "sudo chmod 755 /usr/bin/ping")
    assert [entry["reached"] for entry in found] == [True, True]
    assert all(entry["method"].startswith("UDP datagram of 8972 bytes") for entry in found)


def test_c02_an_index_that_moves_is_picked_up_at_the_next_start(head: Any, cable: None) -> None:
    assert environment(head)["NCCL_IB_GID_INDEX"] == "3"
    bed("cut", nodes.HEAD)
    move(nodes.HEAD, 3, 5)
    bed("heal", nodes.HEAD)
    try:
        assert environment(head)["NCCL_IB_GID_INDEX"] == "3", "what runs keeps its environment"
        nodes.out(head, f"{CTL} restart {UNIT}")
        assert environment(head)["NCCL_IB_GID_INDEX"] == "5"
        rails = shown(head)["last_start"]["rails"]
        assert [(rail["moved"]["from"], rail["moved"]["to"]) for rail in rails] == [(3, 5), (3, 5)]
        assert "moved 3 → 5" in nodes.out(head, f"{FABRIC_ENV} show")
        status = plays.run("playbooks/status.yml").output
        # JSON writes the arrow so.
        assert "enp1s0f1np1 GID index 5, moved 3 \\u2192 5" in status, status[-2000:]
    finally:
        move(nodes.HEAD, 5, 3)
        nodes.out(head, f"{CTL} restart {UNIT}")


def test_c11_a_cable_cut_at_boot_and_healed_after_30_s(host: Any, cable: None) -> None:
    bed("cut", nodes.WORKER)
    bed("reboot", nodes.WORKER)
    journal = f"{nodes.USER_BUS} journalctl --user -b -u {UNIT} -o cat --no-pager"
    nodes.wait_for("the waiting unit", 30, lambda: "waiting, " in nodes.out(host, journal))
    assert "has no carrier" in nodes.out(host, journal)
    time.sleep(30)  # how long the cable is out, not something to wait for
    pid = nodes.unit_property(host, UNIT, "MainPID")
    assert nodes.out(host, f"cat /proc/{pid}/comm") != "sleep", "still waiting, in the same start"
    assert nodes.unit_property(host, UNIT, "NRestarts") == "0"
    bed("heal", nodes.WORKER)
    assert environment(host)["NCCL_IB_GID_INDEX"] == "5"
    assert nodes.unit_property(host, UNIT, "NRestarts") == "0"
    assert shown(host)["last_start"]["waited_s"] > 25


def test_c11_past_the_bound_it_fails_with_the_reason_and_tries_again(host: Any, cable: None) -> None:
    config = f"{nodes.CONFIG}/fabric.json"
    nodes.out(host, f'cp {config} /tmp/fabric.json && sed -i \'s/"wait_s": 120/"wait_s": 2/\' {config}')
    try:
        bed("cut", nodes.WORKER)
        done = host.run(f"{FABRIC_ENV} run -- true")
        assert done.rc == 28
        assert "gave up after 2 s: " in done.stderr.splitlines()[-1]
        assert "has no carrier" in done.stderr.splitlines()[-1]
        host.run(f"{CTL} restart {UNIT}")
        nodes.wait_for("two more tries", 60, lambda: int(nodes.unit_property(host, UNIT, "NRestarts")) >= 2)
        bed("heal", nodes.WORKER)
        active = f"{CTL} is-active {UNIT}"
        nodes.wait_for("the unit", 60, lambda: nodes.out(host, active) == "active" and environment(host))
    finally:
        nodes.out(host, f"mv /tmp/fabric.json {config}")
        host.run(f"{CTL} restart {UNIT}")


def test_c13_without_a_device_there_is_no_fall_back(host: Any) -> None:
    # Its devices one by one: the node has the folder itself mounted.
    hidden = TABLES.with_name("hidden")
    hidden.mkdir()
    devices = [path.name for path in TABLES.iterdir()]
    for name in devices:
        (TABLES / name).rename(hidden / name)
    try:
        done = host.run(f"{FABRIC_ENV} run -- echo started")
        assert (done.rc, done.stdout) == (21, "")
        assert "no fall-back to TCP" in done.stderr
    finally:
        for name in devices:
            (hidden / name).rename(TABLES / name)
        hidden.rmdir()


def report(*damage: tuple[str, Any, str, str]) -> str:
    """What preflight says while each command's damage lasts; (name, host, command, its cure)."""
    try:
        for _name, host, command, _cure in damage:
            nodes.out(host, command)
        outcome = plays.run("playbooks/preflight.yml")
    finally:
        for _name, host, _command, cure in damage:
            nodes.out(host, cure)
    assert outcome.failed, outcome.said()
    assert not any(outcome.changed.values())
    return " ".join(outcome.output.split())


def test_c03_and_c12_all_faults_stand_in_one_report(host: Any) -> None:
    rules = "table inet t { chain i { type filter hook input priority 0; policy accept; tcp dport 6379 drop; }; }"
    said = report(
        ("MTU", host, "sudo ip link set enP2p1s0f1np1 mtu 1500", "sudo ip link set enP2p1s0f1np1 mtu 9000"),
        ("firewall", host, f"echo '{rules}' | sudo nft -f -", "sudo nft delete table inet t"),
    )
    assert "spark-01 enP2p1s0f1np1 9000, spark-02 enP2p1s0f1np1 1500" in said
    assert f"TCP 6379 is blocked from {FABRIC}.0/24" in said
    assert "6379 (silent)" in said


def test_twins_in_one_subnet_are_reported(host: Any) -> None:
    given = f"{FABRIC.rpartition('.')[0]}.105.2"
    move_in = (
        f"sudo ip address add {FABRIC}.77/24 dev enP2p1s0f1np1 && sudo ip address del {given}/24 dev enP2p1s0f1np1"
    )
    back = f"sudo ip address add {given}/24 dev enP2p1s0f1np1; sudo ip address del {FABRIC}.77/24 dev enP2p1s0f1np1"
    said = report(("twins", host, move_in, back))
    assert "enp1s0f1np1" in said
    assert f"{FABRIC}.77" in said
