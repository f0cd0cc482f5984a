# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node is: logins, fabric, hardware as data, linger, power and cables."""

from __future__ import annotations

import time
from pathlib import Path

from testbed.bedlib import groups, node
from testbed.bedlib.system import wait_for
from tests.testbed.handle import Handle

SPARK_PORT = "class/infiniband/rocep1s0f1/ports/1"


def test_logins_with_known_host_keys_and_sudo(handle: Handle) -> None:
    for number in (1, 2):
        assert handle.ssh(number, "hostname; sudo -n id -u; id -un").split() == [f"spark-0{number}", "0", "spark"]
    config = (handle.directory / "ssh_config").read_text()
    assert "StrictHostKeyChecking yes" in config
    ids = {handle.ssh(number, "cat /etc/machine-id") for number in (1, 2)}
    assert len(ids) == 2


def test_the_system_is_up_without_a_failed_unit(handle: Handle) -> None:
    for number in (1, 2):
        assert handle.ssh(number, "systemctl is-system-running --wait") == "running"
        assert handle.ssh(number, "systemctl --failed --no-legend") == ""


def test_up_again_changes_nothing_and_is_quick(handle: Handle) -> None:
    before = groups.processes(handle.bed, 1)
    begin = time.monotonic()
    assert "already up" in handle.call("up").stderr
    assert time.monotonic() - begin < 2
    assert node.leader(handle.bed, 1) in before


def test_fabric_carries_jumbo_frames(handle: Handle) -> None:
    assert "1 received" in handle.ssh(1, "ping -c1 -W2 -M do -s 8972 192.168.213.2")
    assert "too long" in handle.ssh(1, "ping -c1 -W2 -M do -s 8973 192.168.213.2 2>&1 || true")


def test_no_way_out(handle: Handle) -> None:
    assert handle.ssh(1, "ip route show default") == ""


def test_hardware_shows_and_follows_edits(handle: Handle) -> None:
    table = handle.directory / "fixtures/spark-02" / SPARK_PORT
    seen = f"/sys/{SPARK_PORT}"
    assert handle.ssh(2, f"cat {seen}/gids/5") == "0000:0000:0000:0000:0000:ffff:c0a8:d502"
    # In place, by rename, removed, new: each is seen at once.
    (table / "gid_attrs/types/5").unlink()
    (table / "gid_attrs/types/6").write_text("RoCE v2\n")
    new = table / "gids/6.new"
    new.write_text((table / "gids/5").read_text())
    new.replace(table / "gids/6")
    old = (table / "gids/5").read_text()
    (table / "gids/5").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    try:
        assert handle.ssh(2, f"cat {seen}/gids/6 {seen}/gid_attrs/types/6").split("\n") == [old.strip(), "RoCE v2"]
        assert handle.ssh(2, f"cat {seen}/gids/5").startswith("0000:0000:0000:0000:0000:0000")
        assert handle.ssh(2, f"ls {seen}/gid_attrs/types/5 2>&1 || true").endswith("No such file or directory")
        device = handle.directory / "fixtures/spark-02/class/infiniband/mlx5_9"
        device.mkdir()
        assert "mlx5_9" in handle.ssh(2, "ls /sys/class/infiniband")
        device.rmdir()
    finally:
        (table / "gids/5").write_text(old)
        (table / "gid_attrs/types/5").write_text("RoCE v2\n")
        (table / "gid_attrs/types/6").unlink()
        (table / "gids/6").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")


def test_class_net_stays_the_kernels_own(handle: Handle) -> None:
    names = handle.ssh(1, "ls /sys/class/net").split()
    assert sorted(names) == ["enP2p1s0f0np0", "enP2p1s0f1np1", "enP7s7", "enp1s0f0np0", "enp1s0f1np1", "lo"]
    assert handle.ssh(1, "sudo ip link add vl7 type veth; ls -d /sys/class/net/vl7; sudo ip link del vl7").endswith(
        "vl7"
    )
    assert handle.ssh(1, "cat /sys/class/net/enp1s0f1np1/speed /sys/class/net/enp1s0f1np1/mtu").split() == [
        "200000",
        "9000",
    ]


def test_gpu_programs_print_their_data(handle: Handle) -> None:
    assert handle.ssh(1, "nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader") == "NVIDIA GB10, 12.1"
    assert "release 12.9" in handle.ssh(1, "/usr/local/cuda/bin/nvcc --version")
    error = handle.directory / "fixtures/spark-01/gpu/error"
    error.write_text("NVIDIA-SMI has failed\n")
    error.with_name("exit").write_text("9\n")
    try:
        assert handle.ssh(1, "nvidia-smi || echo $?").split("\n") == ["NVIDIA-SMI has failed", "9"]
        assert "GB10" in handle.ssh(2, "nvidia-smi")
    finally:
        error.unlink()
        error.with_name("exit").unlink()


def unit_lives(handle: Handle, mark: str) -> bool:
    """Seen from outside: a login would start the user manager again."""
    for pid in groups.processes(handle.bed, 1):
        try:
            if mark in Path(f"/proc/{pid}/cmdline").read_text():
                return True
        except OSError:
            continue
    return False


def test_a_user_unit_needs_linger_to_outlive_the_session(handle: Handle) -> None:
    start = "systemd-run --user --quiet --collect sleep {}"
    handle.ssh(1, "loginctl disable-linger; " + start.format(71001))
    # systemd-run returns before the process has become what it is to run.
    wait_for(lambda: unit_lives(handle, "71001"), 9, "the unit did not start", pause=0.1)
    wait_for(lambda: not unit_lives(handle, "71001"), 40, "the unit of a user without linger went on", pause=0.5)
    handle.ssh(1, "loginctl enable-linger; " + start.format(71002))
    time.sleep(15)
    assert unit_lives(handle, "71002")
    handle.ssh(1, "loginctl disable-linger; systemctl --user stop 'run-*.service'")


def test_reboot_keeps_the_disk_and_nothing_else(handle: Handle) -> None:
    boot = "cat /proc/sys/kernel/random/boot_id"
    before = handle.ssh(1, boot)
    handle.ssh(1, "echo kept > ~/kept; sudo nft add table inet mine; sudo touch /run/gone /dev/shm/gone")
    handle.call("reboot", "1")
    assert handle.ssh(1, boot) != before
    assert handle.ssh(1, "cat ~/kept; sudo nft list tables; ls /run/gone /dev/shm/gone 2>/dev/null || true") == "kept"
    assert "1 received" in handle.ssh(1, "ping -c1 -W2 192.168.213.2")


def test_a_power_cut_says_goodbye_to_nobody(handle: Handle) -> None:
    server = "import socket,time; s=socket.create_server(('192.168.213.1',7777)); c=s.accept()[0]; time.sleep(600)"
    client = "import socket,time; s=socket.create_connection(('192.168.213.1',7777)); time.sleep(600)"
    run = 'systemd-run --user --quiet --collect /usr/bin/python3 -c "{}"'
    state = "ss -Htn state established dst 192.168.213.1:7777"
    handle.ssh(1, run.format(server))
    handle.ssh(2, "loginctl enable-linger; sleep 0.5; " + run.format(client))
    wait_for(lambda: handle.ssh(2, state) != "", 10, "a connection between the nodes")
    handle.call("kill", "1")
    assert handle.ssh(2, state) != "", "no FIN and no RST came out of the dead node"
    assert handle.ssh(2, "cat /sys/class/net/enp1s0f1np1/carrier") == "0"
    assert groups.processes(handle.bed, 1) == set()
    status = handle.call("status", check=False)
    assert status.returncode == 1
    assert "spark-01  10.213.1.11  off" in status.stdout
    begin = time.monotonic()
    handle.call("start", "1")
    assert time.monotonic() - begin < 20
    assert handle.ssh(2, "cat /sys/class/net/enp1s0f1np1/carrier") == "1"
    handle.ssh(2, "systemctl --user stop 'run-*.service'; loginctl disable-linger")


def test_stop_and_up_again(handle: Handle) -> None:
    handle.call("stop", "2")
    assert "off" in handle.call("status", check=False).stdout
    assert "Stopped" in handle.call("logs", "2").stdout, "the journal of a node that is off comes from its disk"
    assert "powered on: spark-02" in handle.call("up").stderr
    assert handle.call("status").returncode == 0


CARRIER = "cat /sys/class/net/enp1s0f1np1/carrier"
STATE = f"cat /sys/{SPARK_PORT}/state"


def test_a_pulled_cable_is_seen_on_both_ends_and_over_a_reboot(handle: Handle) -> None:
    handle.call("cut", "1")
    try:
        for number in (1, 2):
            assert handle.ssh(number, f"{CARRIER}; {STATE}").split("\n") == ["0", "1: DOWN"]
            assert "192.168.213." in handle.ssh(number, "ip -br -4 addr show enp1s0f1np1"), "the address stays"
        handle.call("reboot", "1")
        assert handle.ssh(1, CARRIER) == "0"
    finally:
        handle.call("heal", "1")
    for number in (1, 2):
        assert handle.ssh(number, f"{CARRIER}; {STATE}").split("\n") == ["1", "4: ACTIVE"]
    assert "1 received" in handle.ssh(2, "ping -c1 -W2 192.168.213.1")


def test_a_silent_cut_keeps_the_carrier(handle: Handle) -> None:
    handle.call("cut", "2", "--silent")
    try:
        assert handle.ssh(1, f"{CARRIER}; {STATE}").split("\n") == ["1", "4: ACTIVE"]
        assert "0 received" in handle.ssh(1, "ping -c1 -W1 192.168.213.2 || true")
    finally:
        handle.call("heal", "2")
    assert "1 received" in handle.ssh(1, "ping -c1 -W3 192.168.213.2")
