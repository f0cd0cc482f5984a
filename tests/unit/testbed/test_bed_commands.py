# SPDX-License-Identifier: GPL-3.0-or-later
"""Command lines, cables, the tree's name, and the inventory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.bedlib import cable, cli, groups, identity, layers, network, node, options, system, tree
from testbed.bedlib.options import CHECKOUT, Bed
from testbed.bedlib.system import BedError

BED = Bed(Path("/b"))


def test_every_verb_is_there() -> None:
    text = cli.parser().format_help()
    verbs = {"up", "down", "reboot", "kill", "start", "stop", "cut", "heal", "ssh", "status", "logs", "inventory"}
    verbs |= {"save", "saved", "forget", "deps"}
    assert verbs <= {line.split()[0] for line in text.splitlines() if line.startswith("    ")}
    assert cli.parser().parse_args(["cut", "1", "spark-02", "--silent"]).node == ["1", "spark-02"]


@pytest.mark.parametrize(
    ("present", "cuts", "nodes", "carrier"),
    [
        ([1, 2], [], 2, {1: True, 2: True}),
        ([1, 2], [1], 2, {1: False, 2: False}),
        ([2], [], 2, {2: False}),
        ([1], [], 1, {1: True}),
        ([1, 2, 3], [2], 3, {1: True, 2: False, 3: True}),
        ([1, 3], [], 3, {1: True, 3: True}),
    ],
)
def test_carrier(present: list[int], cuts: list[int], nodes: int, carrier: dict[int, bool]) -> None:
    assert cable.plan(present, cuts, nodes) == carrier


def test_links_of_a_node() -> None:
    lines = network.node_lines(BED, 2)
    fabric = (
        "link add enp1s0f1np1 address 4e:bb:47:00:02:10 mtu 9000 type veth peer name f0n2 mtu 9000 netns spark-switch"
    )
    assert fabric in lines
    assert "addr add 192.168.100.2/24 dev enp1s0f1np1" in lines
    assert "addr add 10.123.45.12/24 dev enP7s7" in lines
    assert [line for line in lines if "enP2p1s0f1np1" in line and not line.startswith("link add")] == []
    both = network.node_lines(Bed(Path("/b"), rails=2), 2)
    assert "addr add 192.168.101.2/24 dev enP2p1s0f1np1" in both


def test_boot_command() -> None:
    argv = node.boot_argv(BED, 1, ["/top", "/base"])
    text = " ".join(argv)
    assert "lowerdir=/top:/base,upperdir=/b/nodes/spark-01/upper,workdir=/b/nodes/spark-01/work,redirect_dir=on" in text
    assert argv[argv.index("nsenter") + 1] == "--net=/run/netns/spark-node1"
    for option in ("--register=no", "--keep-unit", "--capability=CAP_IPC_LOCK,CAP_NET_ADMIN"):
        assert option in argv
    assert "--bind-ro=/b/fixtures/spark-01:/opt/fixture" in argv


def test_hierarchies(tmp_path: Path) -> None:
    with pytest.raises(BedError, match="no cgroup hierarchy"):
        groups.hierarchies(tmp_path)
    for name in ("systemd", "unified"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    assert groups.hierarchies(tmp_path) == [tmp_path / "systemd", tmp_path / "unified"]
    (tmp_path / "cgroup.controllers").touch()
    assert groups.hierarchies(tmp_path) == [tmp_path]


def test_ports_follow_the_link_but_not_over_an_edit(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    identity.write_fixtures(bed, 1)
    bed.node_path(1).mkdir(parents=True)
    state = bed.fixture_path(1, "class/infiniband/rocep1s0f1/ports/1/state")
    cable.report(bed, 1, False)
    assert state.read_text() == "1: DOWN\n"
    cable.report(bed, 1, True)
    assert state.read_text() == "4: ACTIVE\n"
    state.write_text("1: DOWN\n")
    cable.report(bed, 1, True)
    assert state.read_text() == "1: DOWN\n", "a test said so, not the cable"
    state.write_text("2: INIT\n")
    cable.report(bed, 1, False)
    cable.report(bed, 1, True)
    assert state.read_text() == "2: INIT\n"


def test_tree_name_follows_what_it_is_made_from(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/a").write_text("1")
    first = tree.digest("trixie", tmp_path)
    assert first == tree.digest("trixie", tmp_path)
    (tmp_path / "etc/a").write_text("2")
    second = tree.digest("trixie", tmp_path)
    (tmp_path / "etc/a").chmod(0o755)
    assert len({first, second, tree.digest("trixie", tmp_path), tree.digest("noble", tmp_path)}) == 4


def test_ubuntu_keys_with_another_checksum_are_refused(tmp_path: Path) -> None:
    package = tmp_path / "tree" / tree.UBUNTU_KEYRING.rpartition("/")[2]
    package.parent.mkdir()
    package.write_bytes(b"not a package")
    with pytest.raises(BedError, match=f"expected {tree.UBUNTU_KEYRING_SHA256}; nothing was used"):
        tree.ubuntu_keyring(tmp_path)
    assert not package.exists()


def test_missing_packages_are_named_with_the_apt_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BedError, match="systemd-container") as error:
        system.require_tools("trixie")
    assert "apt-get install --no-install-recommends" in str(error.value)
    assert "mmdebstrap" in str(error.value)


def test_a_wait_has_an_end_and_says_what_for() -> None:
    with pytest.raises(BedError, match="the kettle: not within 0 s"):
        system.wait_for(lambda: False, 0.1, "the kettle")


def test_a_command_that_fails_shows_its_words() -> None:
    with pytest.raises(BedError, match=r"sh -c .*: exit 3: ouch"):
        system.run(["sh", "-c", "echo ouch >&2; exit 3"])
    with pytest.raises(BedError, match="no end after 0 s"):
        system.run(["sleep", "5"], timeout=0.2)


def script(directory: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    program = CHECKOUT / "inventories/local/bed.py"
    environment = {**os.environ, "BED_DIR": str(directory)}
    return subprocess.run(
        [sys.executable, str(program), *argv], capture_output=True, text=True, check=False, env=environment
    )


def test_inventory_script(tmp_path: Path) -> None:
    options.store(Bed(tmp_path, nodes=3), made=True)
    data = json.loads(script(tmp_path, "--list").stdout)
    assert data["sparks"]["hosts"] == ["spark-01", "spark-02", "spark-03"]
    host = data["_meta"]["hostvars"]["spark-02"]
    assert host["ansible_host"] == "10.123.45.12"
    assert host["ansible_ssh_private_key_file"] == str(tmp_path / "id_ed25519")
    assert f"UserKnownHostsFile={tmp_path}/known_hosts" in host["ansible_ssh_common_args"]
    assert "{{" not in json.dumps(data)
    assert json.loads(script(tmp_path, "--host", "spark-02").stdout) == host


def test_inventory_of_no_bed_says_what_to_do(tmp_path: Path) -> None:
    for made in (None, False):
        if made is not None:
            options.store(Bed(tmp_path), made=made)
        done = script(tmp_path, "--list")
        assert (done.returncode, done.stdout) == (1, "")
        assert str(tmp_path) in done.stderr
        assert "testbed/bed up" in done.stderr


def snapshot(cache: Path, name: str, tree_name: str, parents: list[str]) -> Path:
    folder = cache / "snapshots" / tree_name / name
    folder.mkdir(parents=True)
    meta = {"name": name, "nodes": 2, "distro": "trixie", "parents": parents, "made": 0}
    (folder / layers.META).write_text(json.dumps(meta))
    return folder


def test_layers_of_a_snapshot_on_a_snapshot(tmp_path: Path) -> None:
    base = tmp_path / "tree" / "abc"
    lower = snapshot(tmp_path, "engine", "abc", [])
    upper = snapshot(tmp_path, "models", "abc", ["engine"])
    found = layers.lower_folders(Bed(Path("/b"), origin="models"), tmp_path, base)
    assert found[2] == [upper / "spark-02", lower / "spark-02", base]
    assert layers.users(lower) == ["snapshot models"]
    with pytest.raises(BedError, match="in use by snapshot models"):
        layers.drop(lower)
    layers.drop(upper)
    assert [path.name for path in layers.found(tmp_path)] == ["engine"]


def test_a_snapshot_that_does_not_fit_says_why(tmp_path: Path) -> None:
    snapshot(tmp_path, "engine", "old", [])
    with pytest.raises(BedError, match=r"made on another tree \(old, now abc\)"):
        layers.check(tmp_path, "engine", "abc", 2)
    with pytest.raises(BedError, match="no snapshot other"):
        layers.check(tmp_path, "other", "abc", 2)
    with pytest.raises(BedError, match="holds 2 nodes and this bed has 3"):
        layers.check(tmp_path, "engine", "old", 3)


def bed_with_layers(tmp_path: Path) -> tuple[Bed, Path]:
    bed = Bed(tmp_path / "bed")
    for number in bed.numbers():
        upper = bed.node_path(number, "upper")
        for path, text in (("etc/machine-id", "m"), ("etc/hostname", "h"), ("tmp/x", "x"), ("opt/engine", "e")):
            (upper / path).parent.mkdir(parents=True, exist_ok=True)
            (upper / path).write_text(text)
        bed.node_path(number, "work").mkdir()
        bed.node_path(number, "lower").write_text(f"{tmp_path}/cache/tree/abc\n")
    return bed, tmp_path / "cache"


def test_save_moves_the_layers_and_keeps_the_identity(tmp_path: Path) -> None:
    bed, cache = bed_with_layers(tmp_path)
    layers.save(bed, cache, "engine", False)
    final = cache / "snapshots/abc/engine"
    assert (final / "spark-01/opt/engine").read_text() == "e"
    assert not (final / "spark-01/etc/machine-id").exists()
    assert list((final / "spark-01/tmp").iterdir()) == []
    assert layers.lower_of(bed, 2) == [final / "spark-02", cache / "tree/abc"]
    upper = bed.node_path(2, "upper")
    assert (upper / "etc/machine-id").read_text() == "m"
    assert not (upper / "opt").exists()
    assert layers.topmost(bed, 2, "opt/engine") == final / "spark-02/opt/engine"
    with pytest.raises(BedError, match="--replace"):
        layers.save(bed, cache, "engine", False)
    with pytest.raises(BedError, match="in use by the bed in"):
        layers.save(bed, cache, "engine", True)


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_save_that_was_cut_off_leaves_the_bed_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    bed, cache = bed_with_layers(tmp_path)
    real, count = layers.move, iter(range(10))

    def dying(source: Path, target: Path) -> None:
        if next(count) == moves:
            raise KeyboardInterrupt
        real(source, target)

    def dead(layer: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(layers, "move", dying)
    monkeypatch.setattr(layers, "clean", dead)
    with pytest.raises(KeyboardInterrupt):
        layers.save(bed, cache, "engine", False)
    monkeypatch.undo()
    layers.recover(bed)
    complete = moves == 2
    assert bool(layers.found(cache)) == complete
    for number in bed.numbers():
        assert layers.topmost(bed, number, "opt/engine").read_text() == "e"
        assert layers.topmost(bed, number, "etc/machine-id").read_text() == "m"
        assert (len(layers.lower_of(bed, number)) == 2) == complete
    assert not bed.path("save.json").exists()
    assert list(cache.glob("snapshots/*/.engine*")) == []
