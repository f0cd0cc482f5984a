# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds of every table: an index is never one that would fail later as a timeout."""

from __future__ import annotations

from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _roce_env, _roce_ip
from ansible_collections.dgx_spark.vllm.plugins.module_utils._fabric_checks import check_hosts
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce import resolve
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce_pins import plain_index
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce_types import Facts, Port, Rail, Row
from hypothesis import event, given, settings
from hypothesis import strategies as st

DEVICES = ("rocep1s0f1", "roceP2p1s0f1", "rocep1s0f0")
# Few values, so that tables collide in every way: aliases, stale rows, the same address twice.
ADDRESSES = st.sampled_from(["192.168.100.1", "192.168.100.2", "192.168.101.1", "169.254.7.7", "10.0.0.1"])
GIDS = st.one_of(
    ADDRESSES.map(_roce_ip.mapped_gid),
    st.sampled_from(["fe80:0000:0000:0000:0000:0000:0000:0001", "2001:0db8:0000:0000:0000:0000:0000:0001"]),
)
TYPES = st.sampled_from(["RoCE v2", "RoCE v2", "IB/RoCE v1", "RoCE v1", ""])


def noise(netdev: str) -> st.SearchStrategy[Row]:
    """Any row a table may hold beside the right one."""
    places = st.sampled_from([netdev, netdev, "", f"{netdev}.100", "elsewhere"])

    def row(gid: str, kind: str, place: str) -> Row:
        return {"index": 0, "type": kind, "gid": gid, "address": _roce_ip.mapped_address(gid), "netdev": place}

    return st.builds(row, GIDS, TYPES, places)


@st.composite
def port(draw: st.DrawFn, device: str, address: str) -> Port:
    netdev = f"net-{device}"
    rows = draw(st.lists(noise(netdev), max_size=6))
    if draw(st.integers(0, 9)):
        gid = _roce_ip.mapped_gid(address)
        rows.append({"index": 0, "type": "RoCE v2", "gid": gid, "address": address, "netdev": netdev})
    slots = draw(st.lists(st.integers(0, 254), min_size=len(rows), max_size=len(rows), unique=True))
    for row, slot in zip(rows, slots, strict=True):
        row["index"] = slot
    return {
        "device": device,
        "port": 1,
        "state": draw(st.sampled_from(["ACTIVE"] * 8 + ["DOWN", ""])),
        "phys_state": "",
        "link_layer": "Ethernet",
        "rate_mbps": draw(st.sampled_from([None, 10_000, 200_000])),
        "netdevs": [netdev],
        "pcie_width": draw(st.sampled_from([None, 2, 4])),
        "pcie_max_width": None,
        "rows": sorted(rows, key=lambda row: row["index"]),
    }


@st.composite
def facts(draw: st.DrawFn, host: int = 1) -> Facts:
    devices = DEVICES[: draw(st.sampled_from([0, 1, 2, 2, 2, 3]))]
    own = {device: f"192.168.{100 + number}.{host}" for number, device in enumerate(devices)}
    ports = [draw(port(device, address)) for device, address in own.items()]
    extra = st.lists(ADDRESSES, max_size=1)
    netdevs: Any = {}
    for name in ["enP7s7", *(f"net-{device}.100" for device in devices), *(f"net-{device}" for device in devices)]:
        right = [own[name.removeprefix("net-")]] if name.removeprefix("net-") in own else []
        stray = draw(extra) if not draw(st.integers(0, 4)) else []
        prefix = draw(st.sampled_from([24] * 12 + [None, 16]))
        netdevs[name] = {
            "kind": "vlan" if name.endswith(".100") else "physical",
            "lower": [],
            "mtu": draw(st.sampled_from([None, 9000, 9000, 9000, 1500])),
            "carrier": draw(st.sampled_from([None, True, True, True, True, True, False])),
            "operstate": "",
            "speed_mbps": None,
            "addresses": [
                {"address": address, "prefix": prefix, "secondary": False, "dynamic": False}
                for address in dict.fromkeys(right + stray)
            ],
        }
    return {
        "root": "/",
        "hostname": "spark",
        "ports": ports,
        "netdevs": netdevs,
        "address_source": "netlink",
        "nccl_conf": {},
    }


def sound(rail: Rail, found: Facts) -> None:
    """The row of the rail is of version 2, maps the rail's own address, and lies on a port with a link."""
    (row,) = [row for row in rail["rows"] if row["index"] == rail["gid_index"]]
    assert row["type"] == "RoCE v2"
    assert row["gid"] == _roce_ip.mapped_gid(rail["address"])
    assert row["netdev"] in ("", rail["netdev"])
    assert rail["state"] == "ACTIVE"
    assert any(entry["address"] == rail["address"] for entry in found["netdevs"][rail["netdev"]]["addresses"])


# A busy machine is no fault of the code.
EXAMPLES = settings(deadline=None, max_examples=200)

ASKED: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"gid_mode": st.sampled_from(["auto", "pin", "none"])}),
    st.fixed_dictionaries({"addresses": st.lists(ADDRESSES, max_size=2)}),
    st.fixed_dictionaries({"subnets": st.lists(st.sampled_from(["192.168.100.0/24", "10.0.0.0/8"]), max_size=2)}),
    st.fixed_dictionaries(
        {"pins": st.fixed_dictionaries({"index": st.one_of(st.integers(-2, 260), st.text(max_size=3))})}
    ),
)


@EXAMPLES
@given(facts(), ASKED)
def test_an_environment_only_ever_names_sound_rows(found: Facts, asked: dict[str, Any]) -> None:
    result = resolve(found, **asked)
    environment = result["environment"]
    event("refused" if result["errors"] else "resolved")
    if result["errors"]:
        assert environment == {}
        for error in result["errors"]:
            assert all(error[key] for key in ("host", "subject", "found", "expected", "cure", "fault"))
        return
    assert result["rails"]
    for rail in result["rails"]:
        sound(rail, found)
    names = environment["NCCL_IB_HCA"].removeprefix("=").split(",")
    assert names == [f"{rail['device']}:{rail['port']}" for rail in result["rails"]]
    index = environment.get("NCCL_IB_GID_INDEX")
    if index is None:
        assert asked.get("gid_mode") != "pin"
        taken = [_roce_env.nccl_choice(rail["rows"], environment["NCCL_IB_ADDR_RANGE"]) for rail in result["rails"]]
        assert taken == [rail["gid_index"] for rail in result["rails"]]
    else:
        assert str(int(index)) == index
        assert all(int(index) in rail["indices"] for rail in result["rails"])
        assert not set(_roce_env.RANGE) & set(environment)


@EXAMPLES
@given(facts(1), facts(2))
def test_rails_of_two_hosts_pair_off(one: Facts, other: Facts) -> None:
    report = check_hosts({"spark-01": one, "spark-02": other})
    event("refused" if report["errors"] else "resolved")
    if report["errors"]:
        return
    first, second = report["rails"]["spark-01"], report["rails"]["spark-02"]
    assert [rail["subnet"] for rail in first] == [rail["subnet"] for rail in second] == report["subnets"]
    assert not {rail["address"] for rail in first} & {rail["address"] for rail in second}
    for rail in first:
        sound(rail, one)
    for rail in second:
        sound(rail, other)


@EXAMPLES
@given(st.one_of(st.integers(), st.text(), st.floats(), st.booleans(), st.none()))
def test_an_index_is_a_plain_decimal_or_nothing(value: Any) -> None:
    index = plain_index(value)
    if index is not None:
        assert str(index) == str(value)
        assert 0 <= index <= 255


@EXAMPLES
@given(st.integers(0, 2**32 - 1), st.integers(0, 32))
def test_addresses_and_gids_return(number: int, prefix: int) -> None:
    address = _roce_ip.to_text(number)
    assert _roce_ip.to_int(address) == number
    assert _roce_ip.mapped_address(_roce_ip.mapped_gid(address)) == address
    assert _roce_ip.contains(_roce_ip.network(address, prefix), address)


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)), min_size=1, max_size=5))
def test_a_cover_holds_all_and_is_the_smallest(given_: list[tuple[int, int]]) -> None:
    subnets = [_roce_ip.network(_roce_ip.to_text(number), prefix) for number, prefix in given_]
    number, prefix = _roce_ip.parse_subnet(_roce_ip.cover(subnets))
    assert all(
        _roce_ip.contains(f"{_roce_ip.to_text(number)}/{prefix}", subnet.partition("/")[0]) for subnet in subnets
    )
    assert prefix <= min(_roce_ip.parse_subnet(subnet)[1] for subnet in subnets)
    if prefix < 32 and prefix < min(_roce_ip.parse_subnet(subnet)[1] for subnet in subnets):
        halves = {_roce_ip.parse_subnet(subnet)[0] >> (31 - prefix) & 1 for subnet in subnets}
        assert halves == {0, 1}, "a longer prefix would hold all as well"
