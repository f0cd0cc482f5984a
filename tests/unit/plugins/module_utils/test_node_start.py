"""What a start waits for and what it clears: devices of Ray, ports, memory, leftovers, ranks without Ray."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _node_wait
from ansible_collections.dgx_spark.vllm.plugins.module_utils._node_clean import (
    dead_sessions,
    unused_segments,
    used_files,
)
from ansible_collections.dgx_spark.vllm.plugins.module_utils._node_config import NodeError, load
from ansible_collections.dgx_spark.vllm.plugins.module_utils._node_gate import missing_devices
from ansible_collections.dgx_spark.vllm.plugins.module_utils._node_http import judge_completion, parse_metrics
from ansible_collections.dgx_spark.vllm.plugins.module_utils._node_main import VERBS, main
from ansible_collections.dgx_spark.vllm.plugins.module_utils._node_memory import meminfo
from ansible_collections.dgx_spark.vllm.plugins.module_utils._node_proc import listening, taken, unit_of
from ansible_collections.dgx_spark.vllm.plugins.module_utils._rank_watch import RankWatch, states

HOSTS = {"spark-01": "192.168.100.1", "spark-02": "192.168.100.2"}


def node(number: int, alive: bool = True, devices: float = 1) -> dict[str, Any]:
    address = f"192.168.100.{number}"
    return {"NodeID": f"n{number}", "Alive": alive, "NodeManagerAddress": address, "Resources": {"GPU": devices}}


FREE = {"n1": {"GPU": 1.0}, "n2": {"GPU": 1.0}}


@pytest.mark.parametrize(
    ("table", "free", "expected"),
    [
        ([node(1), node(2)], FREE, ""),
        ([node(1)], FREE, "1.0/2 devices, missing in Ray: spark-02 (192.168.100.2)"),
        ([node(1), node(2, alive=False)], FREE, "1.0/2 devices, missing in Ray: spark-02 (192.168.100.2)"),
        ([], {}, "0.0/2 devices, missing in Ray: spark-01 (192.168.100.1), spark-02 (192.168.100.2)"),
        ([node(1), node(2)], {"n1": {}, "n2": {"GPU": 1.0}}, "1.0/2 devices are still taken by the server before"),
        ([node(1), node(2, devices=0)], FREE, "1.0/2 devices on 2 node(s)"),
        ([node(1), node(2), node(9)], FREE, "nodes that are not of this deployment: 192.168.100.9"),
    ],
)
def test_the_gate_names_what_is_missing(table: list[dict[str, Any]], free: dict[str, Any], expected: str) -> None:
    """C20: which host is missing; a dead node that Ray still lists does not count."""
    assert missing_devices(HOSTS, 2, table, free) == expected


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def test_waiting_ends_with_the_condition() -> None:
    """C62: memory that comes back after 20 s is waited for."""
    clock = Clock()
    took = _node_wait.until(lambda: "" if clock.now >= 20 else "not yet", 60, "memory", 1.0, clock, clock.pause)
    assert took == 20


def test_waiting_ends_with_its_bound_and_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with pytest.raises(NodeError, match="memory did not come within 60 s: 3 of 5 GiB"):
        _node_wait.until(lambda: "3 of 5 GiB", 60, "memory", 1.0, clock, clock.pause)
    assert 60 <= clock.now <= 61
    assert capsys.readouterr().out == "waiting for memory: 3 of 5 GiB\n"


def test_a_taken_port_is_named_with_its_owner() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        found = taken([port, 1])
    assert list(found) == [port]
    assert f"pid {os.getpid()}" in found[port]


def test_listening_sockets_of_the_kernels_table() -> None:
    text = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100\n"
        "   1: 0100007F:1F41 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 100\n"
    )
    assert listening(text) == {8000: (1000, 4711)}


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/vllm-serve.service\n", "vllm-serve.service"),
        ("9:name=systemd:/\n0::/system.slice/ssh.service/inner\n", "ssh.service"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", ""),
    ],
)
def test_the_unit_of_a_process(cgroup: str, unit: str) -> None:
    assert unit_of(cgroup) == unit


def test_only_unused_segments_of_ours_go(tmp_path: Path) -> None:
    for name in ("psm_dead", "psm_used", "xcpushm_1", "other"):
        (tmp_path / name).write_text("")
    (tmp_path / "psm_folder").mkdir()
    gone = unused_segments(tmp_path, os.getuid(), {str(tmp_path / "psm_used")})
    assert sorted(path.name for path in gone) == ["psm_dead", "xcpushm_1"]
    assert unused_segments(tmp_path, os.getuid() + 1, set()) == []


def test_a_segment_that_this_process_has_open_counts_as_used(tmp_path: Path) -> None:
    path = tmp_path / "psm_mine"
    with path.open("w"):
        assert str(path) in used_files()
    assert str(path) not in used_files()


def test_only_dead_sessions_go(tmp_path: Path) -> None:
    for name in ("session_2026-01_1", "session_2026-01_2", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "session_latest").symlink_to(tmp_path / "session_2026-01_2")
    used = {str(tmp_path / "session_2026-01_2/logs/raylet.out")}
    assert [p.name for p in dead_sessions(tmp_path, os.getuid(), used)] == ["session_2026-01_1"]


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (200, '{"usage": {"completion_tokens": 1}}', ""),
        (200, '{"usage": {"completion_tokens": 0}}', "0 of 1 tokens"),
        (200, "<html>", "not an answer of the API: <html>"),
        (401, "no", "status 401: no"),
        (0, "refused", "no answer: refused"),
    ],
)
def test_only_tokens_are_readiness(status: int, text: str, expected: str) -> None:
    """C83: an answer of 200 without a token is none."""
    assert judge_completion(status, text, 1) == expected


def test_metrics_are_summed_over_labels_in_any_order() -> None:
    """C84."""
    text = (
        "# HELP x y\n"
        'vllm:num_requests_running{engine="0",model_name="a b"} 1.0\n'
        'vllm:num_requests_running{model_name="a b",engine="1"} 2.0 1700000000\n'
        "process_open_fds 5\nbroken\n"
    )
    assert parse_metrics(text) == {"vllm:num_requests_running": 3.0, "process_open_fds": 5.0}


def test_meminfo_in_bytes() -> None:
    assert meminfo("MemTotal:  2 kB\nHugePages_Total: 3\nbroken\n") == {"MemTotal": 2048, "HugePages_Total": 3}


def test_wrong_usage_and_missing_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-verb"]) == 2
    assert main(["before"]) == 2
    with pytest.raises(NodeError, match=r"node\.json is not there: run site\.yml"):
        load("node", tmp_path)
    (tmp_path / "node.json").write_text("[]")
    with pytest.raises(NodeError, match="holds no table"):
        load("node", tmp_path)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_function(verb: str) -> None:
    from importlib import import_module

    module, function, least, most = VERBS[verb]
    package = "ansible_collections.dgx_spark.vllm.plugins.module_utils"
    assert callable(getattr(import_module(f"{package}.{module}"), function))
    assert least <= most


# As the kernel of the bed showed them: PyTorch's store in tcp6, its address mapped.
TABLE = (
    "  19: 0264A8C0:8460 0164A8C0:733D 06 00000000:00000000\n"
    "   1: 0000000000000000FFFF00000264A8C0:E206 0000000000000000FFFF00000164A8C0:733D 08 00000000:00000001\n"
    "   2: 0000000000000000FFFF00000264A8C0:E207 0000000000000000FFFF00000164A8C0:733E 01 00000000:00000001\n"
)
OPEN, CLOSED, NONE = {"01"}, {"08"}, set[str]()


def test_connections_of_the_kernels_tables() -> None:
    assert states(TABLE, "192.168.100.1", 0x733D) == {"06", "08"}
    assert states(TABLE, "192.168.100.1", 0x733E) == OPEN
    assert states(TABLE, "192.168.100.3", 0x733D) == NONE


def test_a_rank_that_lost_the_others_is_ended_once() -> None:
    watch = RankWatch()
    assert not any(watch.observe(float(t), True, NONE, True) for t in range(100))
    assert watch.observe(100, True, OPEN, True) == ""
    assert watch.observe(101, True, CLOSED, True) == ""
    assert "has ended" in watch.observe(104, True, CLOSED, True)
    assert watch.observe(105, False, NONE, False) == ""
    assert watch.observe(106, True, NONE, False) == ""


def test_a_guard_that_starts_late_still_sees_the_loss() -> None:
    watch = RankWatch()
    assert watch.observe(0, True, CLOSED, True) == ""
    assert "has ended" in watch.observe(3, True, CLOSED, True)


def test_a_rank_whose_head_lost_power_is_ended_after_a_while() -> None:
    watch = RankWatch()
    watch.observe(0, True, OPEN, True)
    reasons = [watch.observe(float(t), True, OPEN, False) for t in range(1, 40)]
    assert next(n for n, why in enumerate(reasons) if why) == 30
