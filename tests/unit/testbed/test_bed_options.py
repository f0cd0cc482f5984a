# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, addresses and folders of a bed, and where its options come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.bedlib import cli, options
from testbed.bedlib.options import Bed
from testbed.bedlib.system import BedError


def parse(*argv: str, env: dict[str, str] | None = None) -> Bed:
    return cli.resolve(cli.parser().parse_args(argv), env or {})


def test_defaults() -> None:
    bed = parse("up")
    assert bed.directory == options.CHECKOUT / ".bed"
    assert (bed.prefix, bed.nodes, bed.net, bed.fabric, bed.rails) == ("spark", 2, "10.123.45", "192.168.100", 1)
    assert (bed.distro, bed.origin) == ("trixie", "")


def test_option_wins_over_variable_and_variable_over_default(tmp_path: Path) -> None:
    env = {"BED_DIR": str(tmp_path), "BED_PREFIX": "env", "BED_NODES": "3", "BED_NET": "10.1.1", "BED_FABRIC": "10.2.2"}
    bed = parse("--prefix", "opt", "up", env=env)
    assert bed == Bed(tmp_path, "opt", 3, "10.1.1", "10.2.2")


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["--prefix", "Spark", "up"], "prefix 'Spark'"),
        (["--prefix", "elevenchars", "up"], "prefix 'elevenchars'"),
        (["--prefix", "a-b", "up"], "prefix 'a-b'"),
        (["--nodes", "0", "up"], "nodes 0"),
        (["--nodes", "9", "up"], "nodes 9"),
        (["--net", "10.1", "up"], "net '10.1'"),
        (["--net", "10.1.300", "up"], "net '10.1.300'"),
        (["--net", "192.168.100", "up"], "overlap"),
        (["--net", "192.168.101", "--rails", "2", "up"], "overlap"),
        (["--rails", "3", "up"], "rails 3"),
        (["--distro", "bookworm", "up"], "distro 'bookworm'"),
        (["up", "--from", "../x"], "snapshot '../x'"),
    ],
)
def test_bad_options_are_named(argv: list[str], word: str) -> None:
    with pytest.raises(BedError, match=word.replace("(", r"\(")):
        parse(*argv)


def test_variable_that_is_no_number() -> None:
    with pytest.raises(BedError, match="BED_NODES='two': expected a number"):
        parse("up", env={"BED_NODES": "two"})


def test_kernel_names_carry_the_prefix_and_fit() -> None:
    bed = Bed(Path("/b"), prefix="tencharsss")
    names = [bed.switch, bed.host_link, *(bed.namespace(number) for number in bed.numbers())]
    assert all(name.startswith("tencharsss-") for name in names)
    assert len(bed.host_link) <= 15


@pytest.mark.parametrize("name", ["2", "02", "spark-02", "spark-2"])
def test_a_node_by_number_or_name(name: str) -> None:
    assert Bed(Path("/b")).number(name) == 2


@pytest.mark.parametrize("name", ["0", "3", "spark-03", "node2", "", "two"])
def test_no_such_node(name: str) -> None:
    with pytest.raises(BedError, match=r"it has spark-01 to spark-02"):
        Bed(Path("/b")).number(name)


def test_addresses() -> None:
    bed = Bed(Path("/b"), nodes=8, rails=2)
    assert [bed.address(number) for number in (1, 8)] == ["10.123.45.11", "10.123.45.18"]
    assert [bed.fabric_address(2, rail) for rail in (0, 1)] == ["192.168.100.2", "192.168.101.2"]


def test_an_existing_bed_keeps_its_options(tmp_path: Path) -> None:
    options.store(Bed(tmp_path, prefix="mine", nodes=3), made=True)
    assert parse("--dir", str(tmp_path), "status").nodes == 3
    assert parse("--dir", str(tmp_path), "--nodes", "3", "up").prefix == "mine"
    # A variable is a default for making one; it does not lock anybody out of a bed that is there.
    assert parse("--dir", str(tmp_path), "down", env={"BED_PREFIX": "other"}).prefix == "mine"
    with pytest.raises(BedError, match="prefix is 'mine', not 'other'"):
        parse("--dir", str(tmp_path), "--prefix", "other", "down")
    with pytest.raises(BedError, match="prefix is 'mine', not 'other'"):
        parse("--dir", str(tmp_path), "up", env={"BED_PREFIX": "other"})
    with pytest.raises(BedError, match="origin is '', not 'snap'"):
        parse("--dir", str(tmp_path), "up", "--from", "snap")


def test_bed_json_round_trip_and_damage(tmp_path: Path) -> None:
    assert options.load(tmp_path) is None
    bed = Bed(tmp_path, "abc", 4, "10.9.9", "10.8.8", 2, "noble", "snap")
    options.store(bed, made=False)
    assert options.load(tmp_path) == (bed, False)
    options.store(bed, made=True)
    assert options.load(tmp_path) == (bed, True)
    (tmp_path / "bed.json").write_text('{"prefix":')
    with pytest.raises(BedError, match=r"bed\.json cannot be read"):
        options.load(tmp_path)


def test_cache_follows_xdg() -> None:
    assert options.cache_directory({"HOME": "/h"}) == Path("/h/.cache/dgx-spark-vllm")
    assert options.cache_directory({"HOME": "/h", "XDG_CACHE_HOME": "/c"}) == Path("/c/dgx-spark-vllm")
