"""One screen: what serves, where, since when, and why not, also where parts of the answer are missing."""

from __future__ import annotations

from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils._status_text import screen

GIB = 1 << 30


def unit(state: str = "active", **changes: Any) -> dict[str, Any]:
    return {"state": state, "since_s": 7200, "enabled": True, "stale": False, "result": "success", **changes}


def head(**changes: Any) -> dict[str, Any]:
    return {
        "name": "spark-01", "is_head": True, "card": "c", "devices": 2, "address": "192.168.100.1", "reason": "",
        "release": "/r/abc", "public_url": "http://10.0.0.1:8000/v1", "problems": [], "strangers": [],
        "memory": {"total": 121 * GIB, "available": 40 * GIB}, "units": {"vllm-serve.service": unit()},
        "cluster": {"devices": 2.0, "used": 2.0, "nodes": ["a", "b"]},
        "server": {"model": "m", "requests": 1.0, "tokens": 100.0, "drafted": 50.0, "accepted": 25.0},
        "kv": {"kv_tokens": 273095.0, "contexts": 1.04},
        "fabric": {"rails": [{"netdev": "e1", "gid_index": 4, "moved": {"from": 3, "to": 4, "at": "2026-07-01"}}]},
        "events": [{"time": 9400, "unit": "vllm-serve.service", "what": "stopped", "why": "it was asked to stop"}],
        **changes,
    }  # fmt: skip


def test_serving() -> None:
    text = screen({"spark-01": {"status": head()}}, now=10000)
    assert text.startswith("m: serving\n")
    assert "2 in use, 2/2 in Ray" in text
    assert "50 % of the draft accepted" in text
    assert "GID index 4, moved 3 → 4" in text
    assert "10 min ago    vllm-serve stopped: it was asked to stop" in text
    assert "kv cache   273,095 tokens, 1.04 full contexts" in text
    assert "40 of 121 GiB free" in text


def test_not_serving_says_why_and_what_is_not_ours() -> None:
    broken = head(reason="stands still after 10 failed starts: ValueError: x", strangers=["pid 7 of uid 0: raylet"],
                  cluster={"error": "Ray did not answer within 20 s"}, linger=False,
                  units={"vllm-serve.service": unit("failed", since_s=None, enabled=False, stale=False)})  # fmt: skip
    text = screen({"spark-01": {"status": broken}}, now=10000)
    assert text.startswith("m: not serving\n")
    assert "why        stands still after 10 failed starts: ValueError: x" in text
    assert "not ours         pid 7 of uid 0: raylet" in text
    assert "Ray did not answer within 20 s" in text
    assert "linger is off" in text
    assert "not started at boot" in text


def test_a_node_that_is_not_reached_is_a_part_of_the_picture() -> None:
    hosts: dict[str, dict[str, Any]] = {
        "spark-01": {"status": head()},
        "spark-02": {"unreachable": True, "msg": "No route\nto host"},
    }
    assert "spark-02: not reached: No route to host" in screen(hosts)


def test_without_the_head_nothing_is_claimed() -> None:
    text = screen({"spark-01": {"unreachable": True, "msg": "x"}, "spark-02": {"failed": True, "msg": "bad"}})
    assert text.startswith("the head says nothing")
    assert "spark-02: no answer: bad" in text


def test_an_empty_node_is_no_error() -> None:
    empty = {"problems": ["configuration: no file"], "strangers": [], "memory": {"total": GIB, "available": GIB}}
    assert "problem          configuration: no file" in screen({"spark-01": {"status": empty}})
