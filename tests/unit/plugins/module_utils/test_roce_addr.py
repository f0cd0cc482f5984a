# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses asked of the kernel: the live answer against iproute2's, and replies that are cut or refused."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _roce_addr, _roce_read


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body + b"\0" * (-len(body) % 4)


def reply(index: int, prefix: int, flags: int, *attributes: bytes) -> bytes:
    return message(20, struct.pack("=BBBBI", socket.AF_INET, prefix, flags, 0, index) + b"".join(attributes))


LOCAL, PEER = attribute(2, socket.inet_aton("192.168.100.1")), attribute(1, socket.inet_aton("192.168.100.9"))


def test_the_own_address_of_a_point_to_point_link_is_the_local_one() -> None:
    found, done = _roce_addr.parse(reply(4, 24, 0x80, PEER, attribute(3, b"enp1s0f1np1\0"), LOCAL))
    assert not done
    assert found == [(4, {"address": "192.168.100.1", "prefix": 24, "secondary": False, "dynamic": False})]


def test_flags_that_do_not_fit_the_header_come_as_an_attribute() -> None:
    flags = attribute(8, struct.pack("=I", 0x201))
    ((_, address),), _done = _roce_addr.parse(reply(4, 24, 0x80, LOCAL, flags))
    assert (address["secondary"], address["dynamic"]) == (True, True)


def test_several_replies_in_one_packet_and_the_end() -> None:
    found, done = _roce_addr.parse(reply(1, 8, 0x80, LOCAL) + reply(2, 24, 0x80, LOCAL) + message(3, b"\0" * 4))
    assert [index for index, _address in found] == [1, 2]
    assert done


def test_a_refusal_is_an_error() -> None:
    with pytest.raises(PermissionError):
        _roce_addr.parse(message(2, struct.pack("=i", -1) + b"\0" * 16))


@pytest.mark.skipif(shutil.which("ip") is None, reason="iproute2 is not installed")
def test_the_live_answer_is_that_of_iproute2() -> None:
    def both() -> tuple[object, object]:
        shown = subprocess.run(["ip", "-j", "address"], capture_output=True, text=True, check=True).stdout
        return _roce_addr.live(), _roce_addr.captured(shown)

    # Interfaces may come and go beside a test; three times in a row they do not.
    pairs = [both() for _ in range(3)]
    assert any(live == shown for live, shown in pairs), pairs
    assert "lo" in _roce_addr.live()


def test_a_machine_without_rdma_reads_as_such(tmp_path: Path) -> None:
    facts = _roce_read.read(str(tmp_path))
    assert (facts["ports"], facts["netdevs"], facts["address_source"]) == ([], {}, "gid")
