# SPDX-License-Identifier: GPL-3.0-or-later
"""Reaching peers: what iputils' ping prints, the datagram that stands in for it, and ports behind firewalls."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_reach as reach

HEAD = "PING 192.168.100.1 (192.168.100.1) from 192.168.100.2 : 8972(9000) bytes of data.\n"
ANSWERED = """
--- 192.168.100.1 ping statistics ---
3 packets transmitted, 3 received, 0% packet loss, time 405ms
rtt min/avg/max/mdev = 0.038/0.106/0.204/0.070 ms
"""
SILENT = """
--- 192.168.100.1 ping statistics ---
16 packets transmitted, 0 received, 100% packet loss, time 4863ms
"""
LOCAL = """
--- 192.168.100.1 ping statistics ---
1 packets transmitted, 0 received, +1 errors, 100% packet loss, time 0ms
"""


def rail(**keys: Any) -> Any:
    return {"address": "192.168.100.2", "subnet": "192.168.100.0/24", "mtu": 9000, "netdev": "eth0", **keys}


@pytest.mark.parametrize(
    ("output", "errors", "reached", "too_long", "forbidden", "reason"),
    [
        (HEAD + ANSWERED, "", True, False, False, ""),
        (HEAD + SILENT, "", False, False, False, "no answer"),
        (
            HEAD + LOCAL,
            "ping: sendmsg: Message too long",
            False,
            True,
            False,
            "ping: sendmsg: Message too long",
        ),
        (
            HEAD + "From 10.0.0.9 icmp_seq=1 Frag needed and DF set (mtu = 1500)\n" + LOCAL,
            "",
            False,
            False,
            False,
            "From 10.0.0.9 icmp_seq=1 Frag needed and DF set (mtu = 1500)",
        ),
        (
            HEAD + "From 192.168.100.2 icmp_seq=1 Destination Host Unreachable\n" + SILENT,
            "",
            False,
            False,
            False,
            "From 192.168.100.2 icmp_seq=1 Destination Host Unreachable",
        ),
        (
            "",
            "ping: bind: Cannot assign requested address",
            False,
            False,
            False,
            "ping: bind: Cannot assign requested address",
        ),
        (
            "",
            "ping: socktype: SOCK_RAW\nping: socket: Operation not permitted\nping: => missing cap_net_raw+p",
            False,
            False,
            True,
            "ping: socktype: SOCK_RAW",
        ),
    ],
)
def test_what_ping_prints(
    output: str, errors: str, reached: bool, too_long: bool, forbidden: bool, reason: str
) -> None:
    found = reach.parse(output, errors)
    assert (found["reached"], found["forbidden"], found["reason"]) == (reached, forbidden, reason)
    assert found["too_long"] == (too_long or "Frag needed" in output)


def test_counts_and_times() -> None:
    found = reach.parse(HEAD + ANSWERED, "")
    assert (found["sent"], found["received"], found["rtt_ms"]) == (3, 3, 0.106)


def test_packets_fill_the_mtu_and_leave_by_the_rail() -> None:
    argv = reach.command("192.168.100.2", "192.168.100.1", 8972)
    assert argv[0] == "ping"
    assert argv[-1] == "192.168.100.1"
    for option, value in (("-M", "do"), ("-s", "8972"), ("-I", "192.168.100.2")):
        assert argv[argv.index(option) + 1] == value


def test_each_peer_is_reached_over_the_rail_it_lies_on() -> None:
    rails = [rail(), rail(address="192.168.101.2", subnet="192.168.101.0/24")]
    peers = ["192.168.100.1", "192.168.101.1", "192.168.100.2", "10.0.0.1", "192.168.100.1"]
    assert [(way["address"], peer) for way, peer in reach.pairs(rails, peers)] == [
        ("192.168.100.2", "192.168.100.1"),
        ("192.168.101.2", "192.168.101.1"),
    ]
    assert reach.reach([], peers) == []


def test_a_datagram_reaches_where_nobody_listens_and_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_PATH", "/nonexistent")
    loopback = rail(address="127.0.0.1", subnet="127.0.0.0/8", netdev="lo")
    (found,) = reach.reach([loopback], ["127.0.0.2"])
    assert found["reached"], found
    assert found["method"] == "UDP datagram of 8972 bytes with DF, since ping: is not installed"
    assert reach.errors_of("spark-01", [found]) == []


def test_a_peer_that_takes_datagrams_in_silence_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        monkeypatch.setattr(reach, "_UDP_PORT", listener.getsockname()[1])
        found = reach._datagram("127.0.0.1", "127.0.0.1", 100)
    assert (found["reached"], found["sent"], found["reason"]) == (False, 3, "no answer")


def test_an_address_that_is_not_ours_cannot_send() -> None:
    found = reach._datagram("192.0.2.77", "127.0.0.1", 100)
    assert not found["reached"]
    assert "assign" in found["reason"]


def test_a_datagram_longer_than_the_link_is_too_long() -> None:
    found = reach._datagram("127.0.0.1", "127.0.0.1", 65508)
    assert (found["reached"], found["too_long"]) == (False, True)


@pytest.mark.parametrize(("too_long", "cure"), [(True, "the same MTU"), (False, "check the cable")])
def test_an_unreached_peer_is_an_error_with_its_cure(too_long: bool, cure: str) -> None:
    entry = {
        "peer": "192.168.100.1",
        "address": "192.168.100.2",
        "netdev": "eth0",
        "mtu": 9000,
        "method": "ping -M do -s 8972",
        "reached": False,
        "too_long": too_long,
        "reason": "no answer",
    }
    (error,) = reach.errors_of("spark-02", [entry])
    assert (error["host"], error["subject"]) == ("spark-02", "peer 192.168.100.1 over eth0")
    assert cure in error["cure"]
    assert "ping -M do -s 8972" in error["found"]
    assert "NOT reached" in reach.as_line(entry)


def test_ports_that_answer_and_ports_that_do_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        taken = full.getsockname()
        clients = [socket.socket() for _ in range(8)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex(taken)  # fills the queue: further connections meet silence, as behind a firewall
        with socket.create_server(("127.0.0.1", 0)) as gone:
            closed = gone.getsockname()[1]
        found = reach.probe_ports(["127.0.0.1"], [listener.getsockname()[1], closed, taken[1]], timeout_s=0.5)
        for client in clients:
            client.close()
    assert [(entry["answer"], entry["passes"]) for entry in found] == [
        ("open", True),
        ("refused", True),
        ("silent", False),
    ]
    (error,) = reach.port_errors("spark-01", found)
    assert error["found"].startswith(f"no answer on TCP {taken[1]} (silent)")
    assert error["subject"] == "firewall of peer 127.0.0.1"
