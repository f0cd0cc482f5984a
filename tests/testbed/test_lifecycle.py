# SPDX-License-Identifier: GPL-3.0-or-later
"""Coming and going: crashes in the middle, two beds at once, snapshots."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.bedlib import network, system
from testbed.bedlib.system import wait_for
from tests.testbed.handle import REGISTRY, Handle


@pytest.mark.parametrize("delay", [0.1, 0.25, 0.4, 0.6, 0.9, 1.3])
def test_killed_in_the_middle_of_up_leaves_nothing_after_down(handle: Handle, tmp_path: Path, delay: float) -> None:
    # `handle` first: the tree is made, and a bed is there that must not be touched.
    before = handle.traces()
    assert {line.split()[0] for line in before} == {
        *("link", "netns", "mount", "run"),
        *("cgroup", "process", "folder"),
    }
    crashed = Handle(tmp_path / "bed", "bedcrash", "10.213.2")
    up = subprocess.Popen(crashed.argv("up"), stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(delay)
    up.send_signal(signal.SIGKILL)
    up.wait(10)
    crashed.call("down")
    assert crashed.traces() == []
    crashed.call("down")
    assert crashed.traces() == []
    assert [line for line in before if not line.startswith("process")] == [
        line for line in handle.traces() if not line.startswith("process")
    ]


def test_killed_while_the_tree_is_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    crashed = Handle(tmp_path / "bed", "bedcrash", "10.213.2")
    up = subprocess.Popen(crashed.argv("up"), stderr=subprocess.DEVNULL, start_new_session=True)
    scratch = set(Path("/tmp").glob("mmdebstrap.*"))
    trees = tmp_path / "cache/dgx-spark-vllm/tree"
    wait_for(lambda: any(trees.glob(".*.making/root/var/lib/apt/lists")), 60, "the making of a tree")
    assert str(trees) in " ".join(commands())
    up.send_signal(signal.SIGKILL)
    up.wait(10)
    wait_for(lambda: str(trees) not in " ".join(commands()), 10, "the maker lived on")
    crashed.call("down")
    assert crashed.traces() == []
    assert [path.name for path in trees.iterdir() if path.suffix != ".lock"] == []
    assert set(Path("/tmp").glob("mmdebstrap.*")) <= scratch


def commands() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace")


def test_up_after_a_crash_begins_anew(tmp_path: Path) -> None:
    crashed = Handle(tmp_path / "bed", "bedcrash", "10.213.2")
    up = subprocess.Popen(crashed.argv("up"), stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(0.7)
    up.send_signal(signal.SIGKILL)
    up.wait(10)
    try:
        crashed.call("up")
        assert crashed.ssh(2, "hostname") == "spark-02"
    finally:
        crashed.call("down")
    assert crashed.traces() == []


def test_every_process_dead_and_the_folder_gone(tmp_path: Path) -> None:
    """Somebody deleted the folder under a running bed: `down` finds the rest by the prefix."""
    lost = Handle(tmp_path / "bed", "bedlost", "10.213.3", "--nodes", "1")
    lost.call("up")
    subprocess.run(["rm", "-rf", str(lost.directory)], check=True)
    lost.call("down")
    assert lost.traces() == []


def test_a_prefix_and_a_network_belong_to_one_bed(handle: Handle, tmp_path: Path) -> None:
    thief = Handle(tmp_path / "bed", handle.prefix, "10.213.4")
    assert f"belongs to the bed in {handle.directory}" in thief.call("up", check=False).stderr
    assert "no bed in" in thief.call("down").stderr
    neighbour = Handle(tmp_path / "bed", "bedother", handle.net)
    failed = neighbour.call("up", check=False)
    assert failed.returncode == 1
    assert f"network {handle.net}.0/24 is in use here" in failed.stderr
    neighbour.call("down")
    assert neighbour.traces() == []
    assert handle.call("status").returncode == 0


def test_two_beds_side_by_side_with_three_nodes_and_two_rails(handle: Handle, tmp_path: Path) -> None:
    second = Handle(tmp_path / "bed", "bedtwo", "10.213.5", "--nodes", "3", "--rails", "2")
    second.call("up")
    try:
        assert second.ssh(3, "hostname") == "spark-03"
        ping = "ping -c1 -W2 -M do -s 8972 "
        assert "1 received" in second.ssh(3, ping + "192.168.213.1")
        assert "1 received" in second.ssh(3, ping + "192.168.214.2")
        # A switch, not one cable: the others go on.
        second.call("cut", "2")
        carriers = [second.ssh(number, "cat /sys/class/net/enp1s0f1np1/carrier") for number in (1, 2, 3)]
        assert carriers == ["1", "0", "1"]
        assert handle.ssh(1, "cat /sys/class/net/enp1s0f1np1/carrier") == "1"
        hosts = json.loads(second.call("inventory").stdout)["sparks"]["hosts"]
        assert hosts == ["spark-01", "spark-02", "spark-03"]
    finally:
        second.call("down")
    assert second.traces() == []
    assert handle.call("status").returncode == 0


def test_snapshot(handle: Handle, tmp_path: Path) -> None:
    name = f"test-{os.getpid()}"
    handle.ssh(1, "echo one > ~/state; mkdir ~/folder; sudo rm /etc/issue")
    handle.ssh(2, "echo two > ~/state; sudo touch /etc/new")
    key = handle.ssh(1, "cat /etc/ssh/ssh_host_ed25519_key.pub")
    copy = Handle(tmp_path / "bed", "bedcopy", "10.213.6")
    try:
        handle.call("save", name)
        assert handle.ssh(1, "cat ~/state; mv ~/folder ~/renamed; ls -d ~/renamed") == "one\n/home/spark/renamed"
        assert handle.call("saved", name).returncode == 0
        assert handle.call("save", name, check=False).returncode == 1
        begin = time.monotonic()
        copy.call("up", "--from", name)
        assert time.monotonic() - begin < 20
        assert (
            copy.ssh(1, "cat ~/state; ls -d ~/folder; ls /etc/issue 2>/dev/null || true") == "one\n/home/spark/folder"
        )
        assert copy.ssh(2, "cat ~/state; ls /etc/new; hostname -I").split()[:3] == ["two", "/etc/new", "10.213.6.12"]
        assert copy.ssh(1, "cat /etc/ssh/ssh_host_ed25519_key.pub") == key
        assert copy.ssh(1, "cat /etc/machine-id") != handle.ssh(1, "cat /etc/machine-id")
        assert "in use by" in copy.call("forget", name, check=False).stderr
        other = Handle(tmp_path / "three", "bedthree", "10.213.7", "--nodes", "3")
        assert "holds 2 nodes" in other.call("up", "--from", name, check=False).stderr
        other.call("down")
        assert other.traces() == []
    finally:
        copy.call("down", check=False)
        handle.call("down")
        handle.call("forget", name, check=False)
        handle.call("up")
    assert copy.traces() == []
    assert handle.call("saved", name, check=False).returncode == 1


def test_registry_and_namespaces_name_their_bed(handle: Handle) -> None:
    data = json.loads((REGISTRY / f"{handle.prefix}.json").read_text())
    assert data["directory"] == str(handle.directory)
    assert network.present(handle.bed)


def test_stale_notes_of_a_machine_that_was_switched_off(tmp_path: Path) -> None:
    """/run on disk: names of namespaces and a note survive, what they named does not."""
    stale = Handle(tmp_path / "bed", "bedstale", "10.213.8", "--nodes", "1")
    for name in ("bedstale-switch", "bedstale-node1"):
        (network.NETNS / name).touch()
    (REGISTRY / "bedstale.json").write_text(json.dumps({"directory": str(tmp_path / "elsewhere")}))
    stale.call("up")
    try:
        assert stale.ssh(1, "hostname") == "spark-01"
        # The same once more, with a bed in the folder.
        stale.call("kill", "1")
        for name in ("bedstale-switch", "bedstale-node1"):
            system.run(["ip", "netns", "del", name], check=False)
            (network.NETNS / name).touch()
        assert "powered on: spark-01" in stale.call("up").stderr
        assert stale.ssh(1, "hostname") == "spark-01"
    finally:
        stale.call("down")
    assert stale.traces() == []
