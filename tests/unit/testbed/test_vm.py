# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool of the VM pair, as far as it goes without a guest; the scenario `kernel` has the rest."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.vm import cli, guest, initrd, pair, qemu, qmp
from testbed.vm.image import Image, digest, locked, run
from testbed.vm.qemu import Ports
from testbed.vm.settings import NODES, RAILS, Settings, VmError, name, number

MODULES_DEP = """\
kernel/fs/ext4/ext4.ko.xz: kernel/lib/crc16.ko.xz kernel/fs/mbcache.ko.xz kernel/fs/jbd2/jbd2.ko.xz
kernel/fs/jbd2/jbd2.ko.xz:
kernel/fs/mbcache.ko.xz:
kernel/lib/crc16.ko.xz:
kernel/drivers/block/virtio_blk.ko.xz:
"""
PORTS = {1: Ports(4001, (4011, 4012)), 2: Ports(4002, (4021, 4022))}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for variable in [variable for variable in os.environ if variable.startswith("VM_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("VM_CACHE", str(tmp_path / "cache"))
    return Settings.from_environment(str(tmp_path / "vm"))


# The initial RAM disk


def test_modules_load_after_what_they_need_and_built_in_ones_are_left_out() -> None:
    order = initrd.load_order(MODULES_DEP, ("virtio_blk", "ext4", "crc32c_generic"))
    assert order[0] == "kernel/drivers/block/virtio_blk.ko.xz"
    assert order[-1] == "kernel/fs/ext4/ext4.ko.xz"
    assert sorted(order) == sorted(line.split(":")[0] for line in MODULES_DEP.splitlines())


def test_archive_is_a_newc_archive_with_aligned_members() -> None:
    members = [("bin", 0o040755, b""), ("init", 0o100755, b"#!x\n"), ("a/long-name.ko", 0o100644, b"\x00\xff" * 33)]
    data = initrd.archive(members)
    found, at = [], 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, length = fields[1], fields[6], fields[11]
        path = data[at + 110 : at + 110 + length - 1].decode()
        start = (at + 110 + length + 3) // 4 * 4
        if path == "TRAILER!!!":
            break
        found.append((path, mode, data[start : start + size]))
        at = (start + size + 3) // 4 * 4
    assert found == members


def test_init_script_is_sound_shell() -> None:
    subprocess.run(["sh", "-n"], input=initrd.INIT, text=True, check=True)


# The guest


def test_every_file_of_the_guest_is_chosen_by_an_address_of_its_own() -> None:
    files = guest.files()
    macs = [
        line.partition("=")[2]
        for path, file in files.items()
        if path.endswith(".link")
        for line in file.text.splitlines()
        if line.startswith("MACAddress=")
    ]
    assert len(macs) == len(set(macs)) == len(NODES) * (1 + len(RAILS))
    for rail in RAILS:
        assert f"rdma link add {rail.device} type rxe netdev {rail.netdev}" in files[_unit(rail.device)].text
        assert len(rail.netdev) <= 15
    assert files["etc/sudoers.d/spark"].mode == 0o440


def _unit(device: str) -> str:
    return f"etc/systemd/system/rxe-{device}.service"


def test_identity_carries_keys_and_names_as_tmpfiles_lines() -> None:
    text = guest.identity(2, "SECRET\n", "ssh-ed25519 AAAA me\n")
    head, _, encoded = text.partition("=")
    assert head == "io.systemd.credential.binary:tmpfiles.extra"
    lines = [line.split() for line in base64.b64decode(encoded).decode().splitlines()]
    content = {line[1]: base64.b64decode(line[6]).decode() for line in lines if line[0] == "f+~"}
    assert content["/etc/ssh/ssh_host_ed25519_key"] == "SECRET\n"
    assert content["/etc/hostname"] == "spark-02\n"
    assert content["/home/spark/.ssh/authorized_keys"] == "ssh-ed25519 AAAA me\n"
    modes = {line[1]: line[2] for line in lines}
    assert modes["/etc/ssh/ssh_host_ed25519_key"] == modes["/home/spark/.ssh/authorized_keys"] == "0600"


# The emulator


def test_cables_join_the_same_rail_of_both_nodes_on_loopback_alone(settings: Settings, tmp_path: Path) -> None:
    ends = {}
    for node in NODES:
        line = qemu.argv(settings, Image(tmp_path), node, PORTS, "tcg", load=False)
        cables = [
            dict(part.split("=", 1) for part in word.split(",")[1:]) for word in line if word.startswith("dgram,")
        ]
        assert {end["local.host"] for end in cables} | {end["remote.host"] for end in cables} == {"127.0.0.1"}
        ends[node] = [(end["local.port"], end["remote.port"]) for end in cables]
        assert [word for word in line if word.startswith("user,")] == [
            f"user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:{PORTS[node].ssh}-:22"
        ]
    assert ends[1] == [(there, here) for here, there in ends[2]]


def test_no_key_stands_in_the_command_line(settings: Settings, tmp_path: Path) -> None:
    line = qemu.argv(settings, Image(tmp_path), 1, PORTS, "kvm", load=True)
    assert "type=11,path=spark-01.identity" in line
    assert line[-2:] == ["-loadvm", qemu.SNAPSHOT]


def test_digest_is_stable() -> None:
    assert digest() == digest()
    assert len(digest()) == 16


def test_a_pid_of_something_else_is_never_taken_for_an_emulator(tmp_path: Path) -> None:
    assert qemu.pid_of(tmp_path, 1) is None
    for text in (str(os.getpid()), "1", "999999999", "", "x"):
        (tmp_path / "spark-01.pid").write_text(text)
        assert qemu.pid_of(tmp_path, 1) is None
    qemu.kill(tmp_path, 1)


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[tuple[Path, list[bytes]]]:
    """A control socket that answers with given lines, one for each command, and then closes."""
    path, answers = tmp_path / "spark-01.qmp", [b'{"QMP": {}}', b'{"return": {}}']
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(1)

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(answers[0] + b"\n")
            for answer in answers[1:]:
                connection.recv(4096)
                connection.sendall(answer + b"\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield path, answers
    thread.join(5)
    server.close()


def test_events_between_question_and_answer_are_passed_over(answering: tuple[Path, list[bytes]]) -> None:
    path, answers = answering
    answers.append(b'{"event": "STOP"}\n{"return": {"running": true}}')
    with qmp.connect(path) as monitor:
        assert monitor.execute("query-status") == {"running": True}


def test_a_refusal_of_the_human_monitor_is_an_error(answering: tuple[Path, list[bytes]]) -> None:
    path, answers = answering
    answers.append(b'{"return": "Error: no disk can hold it\\r\\n"}')
    with pytest.raises(VmError, match="savevm ready: Error: no disk"), qmp.connect(path) as monitor:
        monitor.human("savevm ready", 5)


def test_an_emulator_that_hangs_up_is_named(answering: tuple[Path, list[bytes]]) -> None:
    path, _answers = answering
    with pytest.raises(VmError, match=r"spark-01\.qmp: .*closed"), qmp.connect(path) as monitor:
        monitor.execute("stop")


@pytest.mark.skipif(shutil.which(qemu.PROGRAM) is None, reason="needs the emulator")
def test_a_real_emulator_is_started_found_asked_and_ended(tmp_path: Path) -> None:
    line = [qemu.PROGRAM, "-name", name(1), "-machine", "none", "-nodefaults", "-display", "none"]
    line += ["-pidfile", "spark-01.pid", "-qmp", "unix:spark-01.qmp,server=on,wait=off"]
    qemu.start(tmp_path, 1, line)
    try:
        with qmp.connect(tmp_path / "spark-01.qmp") as monitor:
            assert monitor.execute("query-name") == {"name": "spark-01"}
            with pytest.raises(VmError, match="no-such-thing"):
                monitor.execute("no-such-thing")
        assert qemu.pid_of(tmp_path, 1)
    finally:
        qemu.kill(tmp_path, 1)
    assert qemu.pid_of(tmp_path, 1) is None
    with pytest.raises(VmError, match="no emulator listens"), qmp.connect(tmp_path / "spark-01.qmp"):
        pass
    with pytest.raises(VmError, match=r"did not start: .*unsupported machine"):
        qemu.start(tmp_path, 1, [qemu.PROGRAM, "-machine", "no-such-machine", "-display", "none"])


# Folders, words, waits


def test_down_never_removes_a_folder_it_did_not_make(settings: Settings) -> None:
    settings.directory.mkdir()
    (settings.directory / "thesis.txt").write_text("years")
    with pytest.raises(VmError, match="not made by this tool"):
        pair.Pair(settings).down()
    assert (settings.directory / "thesis.txt").exists()


def test_down_leaves_nothing_and_may_be_said_twice(settings: Settings) -> None:
    one = pair.Pair(settings)
    settings.directory.mkdir()
    one._write(pair.State("tcg", "0" * 16, PORTS))
    (settings.directory / "spark-01.qcow2").write_bytes(b"x")
    one.down()
    one.down()
    assert list(settings.directory.parent.iterdir()) == []


def test_boots_are_counted_by_what_the_console_says_in_its_own_line(settings: Settings) -> None:
    settings.directory.mkdir()
    console = settings.directory / "spark-01.console"
    console.write_bytes(
        b"\x1b[!p[    1.0] nothing of vm-ready\r\nvm-ready\r\n[    9.1] Restarting system\r\nvm-ready\r\n"
    )
    assert pair.Pair(settings)._boots(1) == 2


def test_inventory_is_empty_without_a_pair_and_whole_with_one(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    one = pair.Pair(settings)
    assert cli.inventory(one) == {"sparks": {"hosts": []}, "_meta": {"hostvars": {}}}
    settings.directory.mkdir()
    one._write(pair.State("tcg", "0" * 16, PORTS, cut=True))
    assert one.state() == pair.State("tcg", "0" * 16, PORTS, cut=True)
    assert cli.main(["--dir", str(settings.directory), "inventory", "--list"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sparks"]["hosts"] == ["spark-01", "spark-02"]
    second = found["_meta"]["hostvars"]["spark-02"]
    assert (second["ansible_host"], second["ansible_port"]) == ("127.0.0.1", 4002)
    assert "HostKeyAlias=spark-02" in second["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in second["ansible_ssh_common_args"]


def test_a_verb_without_a_pair_says_how_to_get_one(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--dir", str(settings.directory), "ssh", "1", "true"]) == 1
    assert "cure: testbed/vm/vm up" in capsys.readouterr().err
    assert cli.main(["--dir", str(settings.directory), "save", "../x"]) == 1
    assert cli.main(["--dir", str(settings.directory), "reboot", "3"]) == 1


@pytest.mark.parametrize(
    ("variable", "value"), [("VM_ACCEL", "hvf"), ("VM_MEMORY", "64"), ("VM_CPUS", "0"), ("VM_BOOT_S", "soon")]
)
def test_a_bad_setting_is_named(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(VmError, match=f"{variable}={value}"):
        Settings.from_environment()


def test_nodes_go_by_number_or_name() -> None:
    assert [number(text) for text in ("1", "spark-02")] == [1, 2]
    with pytest.raises(VmError, match="spark-01"):
        number("spark-03")


def test_waits_end(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        locked(tmp_path / "lock", 1),
        pytest.raises(VmError, match="still held"),
        locked(tmp_path / "lock", 0.3),
    ):
        pass
    with pytest.raises(VmError, match="not done after"):
        run(["sleep", "20"], 0.2)
    with pytest.raises(VmError, match="vm deps"):
        run(["no-such-program-of-ours"], 1)
    with pytest.raises(VmError, match=r"ended with 3:\nwhy"):
        run(["sh", "-c", "echo why; exit 3"], 5)
    assert time.monotonic() - began < 15
