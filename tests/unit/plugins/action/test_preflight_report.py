# SPDX-License-Identifier: GPL-3.0-or-later
"""The one report: whatever any probe of any host found, or did not come to find."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible_collections.dgx_spark.vllm.plugins.action.preflight_report import ActionModule

GIB = 1024**3
NODE = {
    "systemd": 255,
    "python": {"path": "/usr/bin/python3.12", "version": "3.12.3", "minor": "3.12"},
    "memory": {"total": 121 * GIB},
    "arch": "aarch64",
    "kernel": "6.11",
    "gpus": [],
    "nvcc": "13.0",
    "linger": True,
    "remove_ipc": False,
}
DEPLOYMENT = {
    "addresses": {"a": ["192.168.100.1"], "b": ["192.168.100.2"]},
    "node": NODE,
    "card": {"caps": {"head": None, "worker": None, "driver": None}},
    "is_head": True,
}
FAULT = {"host": "b", "subject": "MTU", "found": "1500", "expected": "9000", "cure": "set it"}


def report(fabric: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The result of the action for two hosts whose fabric probes gave `fabric`."""
    args = {"hosts": ["a", "b"], "fault_variables": ["fabric"], "reserve_bytes": GIB}
    task = SimpleNamespace(args=args, async_val=0, environment=None, diff=False, check_mode=False)
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    hostvars = {host: {"deployment": DEPLOYMENT, "fabric": fabric.get(host, {})} for host in "ab"}
    return action.run(task_vars={"hostvars": hostvars})


def test_nothing_found_passes() -> None:
    result = report({"a": {"errors": []}, "b": {"skipped": True}})
    assert not result.get("failed")
    assert result["report"] == ""


def test_an_error_of_one_host_fails_the_run() -> None:
    result = report({"b": {"errors": [FAULT]}})
    assert result["failed"]
    assert "[b] MTU" in result["msg"]


def test_a_warning_is_shown_and_does_not_fail() -> None:
    result = report({"b": {"errors": [], "warning_details": [FAULT]}})
    assert not result.get("failed")
    assert "1 warning" in result["warnings"][0]


@pytest.mark.parametrize("key", ["msg", "module_stderr"])
def test_a_probe_that_crashed_is_not_taken_for_a_good_one(key: str) -> None:
    result = report({"a": {key: "Traceback: boom"}})
    assert result["failed"]
    assert "boom" in result["msg"]


def test_ports_that_only_our_own_table_of_another_fabric_closes_are_no_fault() -> None:
    silent = {**FAULT, "host": "a", "subject": "firewall of peer 192.168.100.2"}
    fabric = {"a": {"errors": [silent]}, "b": {"errors": [], "firewall": {"own_table_stale": True}}}
    assert not report(fabric).get("failed")
    # The peer's own firewall is another matter.
    assert report({**fabric, "b": {"errors": [], "firewall": {"own_table_stale": False}}})["failed"]
