# SPDX-License-Identifier: GPL-3.0-or-later
"""Firewalls: every answer against what a real kernel did with real connections under the same rules.

`firewall/` holds rule sets, their source beside what `nft -j list ruleset` and `ufw status verbose` made of them, and
in `observed.json` which ports of 192.168.100.1 on enp1s0f1np1 two peers could connect to.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_firewall, _fabric_nft, _fabric_ufw

DATA = Path(__file__).with_name("firewall")
OBSERVED: list[dict[str, Any]] = json.loads((DATA / "observed.json").read_text(encoding="utf-8"))
CERTAIN = ("all", "filter", "maps", "two")
WAY = ("192.168.100.0/24", "enp1s0f1np1", "192.168.100.1")
PORTS = [6379, 6380]


def text(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def packet(source: str, port: int) -> _fabric_nft.Packet:
    return {"source": source, "destination": "192.168.100.1", "interface": "enp1s0f1np1", "port": port}


def answers(entry: dict[str, Any]) -> list[tuple[int, str, str]]:
    """Port, what the kernel did, and what this code says."""
    observed = [(port, "accept") for port in entry["accept"]] + [(port, "drop") for port in entry["drop"]]
    source = entry["source"]
    if entry["ruleset"] == "ufw":
        ufw = _fabric_ufw.parse(text("ufw-active.txt"))
        return [(port, did, _fabric_ufw.verdict(ufw, packet(source, port))) for port, did in observed]
    ruleset = _fabric_nft.Ruleset(text(f"{entry['ruleset']}.json"))
    return [(port, did, ruleset.verdict(packet(source, port))) for port, did in observed]


@pytest.mark.parametrize("entry", OBSERVED, ids=lambda entry: f"{entry['ruleset']}-{entry['source']}")
def test_no_answer_contradicts_the_kernel(entry: dict[str, Any]) -> None:
    found = answers(entry)
    assert len(found) >= 16
    wrong = [(port, did, said) for port, did, said in found if said not in (did, "unknown")]
    assert wrong == []
    if entry["ruleset"] in (*CERTAIN, "ufw"):
        assert [said for _port, _did, said in found] == [did for _port, did, _said in found], "no doubt here"


def test_a_rule_that_is_not_understood_leaves_doubt_and_no_more() -> None:
    ruleset = _fabric_nft.Ruleset(text("concat.json"))
    assert ruleset.verdict(packet("192.168.100.2", 6379)) == "accept"
    assert ruleset.verdict(packet("192.168.100.2", 40000)) == "unknown"


def judge(ufw: str = "", nft: str = "") -> tuple[list[str], list[str]]:
    errors, warnings = _fabric_firewall.judge("spark-01", ufw, nft, [WAY], PORTS)
    return [error["found"] for error in errors], [warning["found"] for warning in warnings]


def test_c12_ufw_with_port_22_alone_names_ports_and_subnet() -> None:
    status = (
        "Status: active\nDefault: deny (incoming), allow (outgoing)\n\n22/tcp                     ALLOW IN    Anywhere"
    )
    errors, warnings = _fabric_firewall.judge("spark-01", status, "", [WAY], PORTS)
    (error,) = errors
    assert warnings == []
    assert error["host"] == "spark-01"
    assert error["found"] == "TCP 6379, 6380, 32768-60999 is blocked from 192.168.100.0/24"
    assert error["cure"].endswith("sudo ufw allow in on enp1s0f1np1 from 192.168.100.0/24")


def test_the_cure_cures() -> None:
    status = "Status: active\nDefault: deny (incoming)\n\nAnywhere on enp1s0f1np1    ALLOW IN    192.168.100.0/24"
    assert judge(status) == ([], [])


def test_ephemeral_ports_in_part_are_named_as_spans() -> None:
    status = (
        "Status: active\nDefault: allow (incoming)\n\n40000:40009/tcp  DENY IN  Anywhere\n40010  REJECT IN  Anywhere"
    )
    assert judge(status)[0] == ["TCP 40000-40010 is blocked from 192.168.100.0/24"]


def test_an_inactive_ufw_blocks_nothing_and_no_tool_is_no_fault() -> None:
    assert judge(text("ufw-inactive.txt")) == ([], [])
    assert judge() == ([], [])


def test_ufws_own_chains_answer_to_ufw_alone() -> None:
    assert judge("Status: active\nDefault: allow (incoming)\n", text("by-ufw.json")) == ([], [])
    assert "ufw-user-input" in text("by-ufw.json")


def test_nftables_that_drops_what_it_does_not_know() -> None:
    errors, _warnings = judge(nft=text("filter.json"))
    (found,) = errors
    assert "32768-39999" in found
    assert "6379" not in found, "the set of ports lets it through"
    assert judge(nft=text("all.json")) == ([], []), "the whole interface is let through"


def test_what_may_block_is_a_warning() -> None:
    errors, warnings = judge(nft=text("limit.json"))
    assert errors == []
    assert warnings == ["rules of a kind that is not understood may block TCP 32768-60999"]


def test_a_captured_tree_is_judged_and_an_unreadable_ufw_is_told(tmp_path: Path) -> None:
    (tmp_path / "etc/ufw").mkdir(parents=True)
    (tmp_path / "etc/ufw/ufw.conf").write_text("# x\nENABLED=yes\n", encoding="utf-8")
    found = _fabric_firewall.judge_live("spark-01", str(tmp_path), [WAY], PORTS)
    assert found["errors"] == []
    assert found["ufw"] == {"enabled": True, "read": False, "note": "not captured"}
    assert [warning["subject"] for warning in found["warnings"]] == ["firewall ufw"]
    (tmp_path / "ufw-status.txt").write_text(text("ufw-active.txt"), encoding="utf-8")
    (tmp_path / "nft-ruleset.json").write_text(text("by-ufw.json"), encoding="utf-8")
    found = _fabric_firewall.judge_live("spark-01", str(tmp_path), [WAY], PORTS)
    assert [error["subject"] for error in found["errors"]] == ["firewall ufw on enp1s0f1np1"]
    assert found["warnings"] == []


def test_our_own_table_of_another_fabric_is_told_and_not_taken_for_a_fault() -> None:
    table = {"family": "inet", "table": "dgx_spark_vllm"}
    drop = [
        {
            "match": {
                "op": "==",
                "left": {"payload": {"protocol": "tcp", "field": "dport"}},
                "right": {"set": [6379, 6380]},
            }
        },
        {"drop": None},
    ]
    own = [
        {"chain": {**table, "name": "input", "type": "filter", "hook": "input", "prio": -10, "policy": "accept"}},
        {"rule": {**table, "chain": "input", "expr": drop}},
    ]
    text = json.dumps({"nftables": own})
    ways = [("192.168.101.0/24", "enp1s0f1np1", "192.168.101.1")]
    assert _fabric_firewall.judge("a", "", text, ways, [6379]) == ([], [])
    assert _fabric_firewall.own_table_stale(text, ways, [6379])
    assert not _fabric_firewall.own_table_stale(text, ways, [5000])
    # A table of somebody else that blocks the same is a fault of its own.
    both = json.dumps({"nftables": own + json.loads(text.replace("dgx_spark_vllm", "filter"))["nftables"]})
    assert not _fabric_firewall.own_table_stale(both, ways, [6379])
    assert len(_fabric_firewall.judge("a", "", both, ways, [6379])[0]) == 1
