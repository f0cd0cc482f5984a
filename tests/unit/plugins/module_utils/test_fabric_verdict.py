# SPDX-License-Identifier: GPL-3.0-or-later
"""Measuring rails: outputs of perftest and iperf3, what should come, and the verdict."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_bench as bench
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_reach
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_verdict as verdict

BANDWIDTH = """\
 WARNING: BW peak won't be measured in this run.
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : rocep1s0f1
 Number of qps   : 1            Transport type : IB
 local address: LID 0000 QPN 0x0149 PSN 0x5fbd93 RKey 0x1fffbd VAddr 0x007f6d3c9a2000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:100:01
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      930600           0.00               97.58  \t\t     0.186123
---------------------------------------------------------------------------------------
"""
LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%[usec]
 2       5000          1.79           7.34         1.87     \t       1.88        \t0.05   \t\t2.11    \t\t4.02
---------------------------------------------------------------------------------------
"""
IPERF = json.dumps({"end": {"streams": [], "sum_received": {"bits_per_second": 61620414204.79}}})
RAIL = {
    "address": "192.168.100.1",
    "netdev": "enp1s0f1np1",
    "device": "rocep1s0f1",
    "port": 1,
    "gid_index": 3,
    "subnet": "192.168.100.0/24",
    "speed_mbps": 200_000,
    "pcie_width": 4,
    "mtu": 9000,
}


def test_outputs() -> None:
    assert verdict.perftest_mbps(BANDWIDTH) == 97_580
    assert verdict.perftest_us(LATENCY) == 1.87
    assert verdict.iperf3_mbps(IPERF) == pytest.approx(61_620.4, abs=0.1)


@pytest.mark.parametrize("text", ["", "Couldn't connect to 192.168.100.2:18515", "1 2 3"])
def test_outputs_without_a_measurement(text: str) -> None:
    for read in (verdict.perftest_mbps, verdict.perftest_us, verdict.iperf3_mbps):
        with pytest.raises(verdict.VerdictError, match="no measurement"):
            read(text)
    with pytest.raises(verdict.VerdictError, match="unable to connect"):
        verdict.iperf3_mbps('{"end": {}, "error": "unable to connect to server"}')


@pytest.mark.parametrize(
    ("speed", "width", "expected"),
    [(200_000, 4, 100_000), (200_000, 2, 50_000), (10_000, 4, 10_000), (200_000, None, 200_000), (None, None, None)],
)
def test_what_a_rail_should_give(speed: int | None, width: int | None, expected: int | None) -> None:
    assert verdict.expected_mbps({"speed_mbps": speed, "pcie_width": width}) == expected


@pytest.mark.parametrize(
    ("method", "mbps", "latency", "floor", "words"),
    [
        ("perftest", 97_580, 1.9, 0, ""),
        ("perftest", 49_000, 1.9, 0, "49.0 Gb/s, at least 90 expected"),
        ("perftest", 97_580, 80, 0, "80.0 µs, at most 10 expected"),
        ("iperf3", 61_000, 120, 0, ""),
        ("iperf3", 9_400, 120, 0, "9.4 Gb/s, at least 40 expected"),
        ("iperf3", 9_400, 120, 9_000, ""),
        ("perftest", 97_580, 1.9, 150_000, "97.6 Gb/s, at least 150 expected"),
    ],
)
def test_the_verdict(method: str, mbps: float, latency: float, floor: int, words: str) -> None:
    found = verdict.verdict(method, RAIL, mbps, latency, floor)
    assert (found["sound"], found["reason"]) == (not words, words)


def test_bounds_of_the_inventory_stand_in_for_both() -> None:
    assert verdict.verdict("iperf3", RAIL, 300, 4000, 200, 5000)["sound"]
    assert verdict.verdict("iperf3", RAIL, 300, 6000, 200, 5000)["reason"] == "6000.0 µs, at most 5000 expected"


def test_the_best_method_that_all_have() -> None:
    both, tcp = {"perftest": True, "iperf3": True}, {"perftest": False, "iperf3": True}
    assert verdict.choose({"a": both, "b": both}) == ("perftest", "")
    assert verdict.choose({"a": both, "b": tcp}) == ("iperf3", "")
    lacking = {"perftest": False, "iperf3": False}
    assert verdict.choose({"a": both, "b": lacking})[1].endswith("(b lack iperf3)")


def test_the_table_names_both_ends() -> None:
    way = {"peer": "192.168.100.2", **{key: RAIL[key] for key in ("address", "netdev", "device")}}
    lines = verdict.table(
        [way | verdict.verdict("perftest", RAIL, 97_580, 1.87), way | {"sound": False, "error": "no answer"}]
    )
    assert lines[0].endswith("→ 192.168.100.2: 97.6 of 100 Gb/s, 1.87 µs (perftest): sound")
    assert lines[1].endswith("FAILED: no answer")


def test_programs_use_the_rail_and_its_index() -> None:
    servers = bench.commands("perftest", RAIL, 18515)
    clients = bench.commands("perftest", RAIL, 18515, "192.168.100.2")
    assert [argv[0] for argv in servers] == ["ib_write_bw", "ib_write_lat"]
    assert [*servers[0], "192.168.100.2"] == clients[0]
    text = " ".join(clients[0])
    assert "-d rocep1s0f1 -i 1 -x 3" in text
    assert " ".join(clients[1]).endswith("-p 18516 -n 1000 192.168.100.2")
    (iperf,) = bench.commands("iperf3", RAIL, 18517, "192.168.100.2")
    assert iperf[:5] == ["iperf3", "--bind", "192.168.100.1", "--port", "18517"]
    assert bench.ports_of("perftest", 1, 18515) == [18517, 18518]
    assert bench.ports_of("iperf3", 1, 18515) == [18517]


def test_what_listens_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert port in bench.listening()
    assert port not in bench.listening()


def test_perftest_counts_only_with_the_kernels_devices(tmp_path: Path) -> None:
    assert bench.tools(str(tmp_path))["perftest"] is False


def test_a_peer_that_is_not_reached_is_a_result_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fabric_reach, "_PATH", "/nonexistent")
    rail: dict[str, Any] = {**RAIL, "address": "192.0.2.77"}
    (found,) = bench.measure("iperf3", [rail], ["192.168.100.2", "10.0.0.1"], 18515, 1)
    assert found["sound"] is False
    assert found["error"].startswith("not reached: Cannot assign requested address")
