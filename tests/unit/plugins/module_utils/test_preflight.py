# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault of every host in one list, before anything is changed."""

from __future__ import annotations

from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _preflight as preflight

GIB = preflight.GIB


def node(**changes: Any) -> dict[str, Any]:
    """A Spark as it should be."""
    return {
        "systemd": 255,
        "python": {"path": "/usr/bin/python3.12", "version": "3.12.3", "minor": "3.12"},
        "memory": {"total": 121 * GIB, "available": 118 * GIB},
        "arch": "aarch64",
        "kernel": "6.11.0-1016-nvidia",
        "gpus": [{"name": "NVIDIA GB10", "driver": "580.95.05", "compute_cap": "12.1"}],
        "nvcc": "13.0",
        "linger": True,
        "remove_ipc": True,
        **changes,
    }


def pair(head: dict[str, Any], worker: dict[str, Any], **caps: int) -> dict[str, dict[str, Any]]:
    """Two members of a deployment with the reference card's caps."""
    card = {"caps": {"head": 98 * GIB, "worker": 110 * GIB, "driver": 12 * GIB, **caps}}
    return {
        "a": {"node": head, "card": card, "is_head": True},
        "b": {"node": worker, "card": card, "is_head": False},
    }


def test_two_sparks_as_they_should_be_have_no_fault() -> None:
    assert preflight.check(pair(node(), node()), 4 * GIB) == ([], [])


def test_caps_and_reserve_beyond_the_memory_are_summed_up() -> None:
    errors, _warnings = preflight.check(pair(node(), node()), 14 * GIB)
    assert [fault["host"] for fault in errors] == ["a", "b"]
    assert "98.0 GiB + vLLM driver 12.0 GiB + reserve 14.0 GiB = 124.0 GiB" in errors[0]["found"]


def test_a_driver_or_kernel_that_differs_is_a_warning_with_both() -> None:
    other = node(kernel="6.8.0", gpus=[{"name": "NVIDIA GB10", "driver": "590.1", "compute_cap": "12.1"}])
    errors, warnings = preflight.check(pair(node(), other), GIB)
    assert errors == []
    assert {fault["subject"] for fault in warnings} == {"kernel differs", "NVIDIA driver differs"}
    assert all("a " in fault["found"] and "b " in fault["found"] for fault in warnings)


def test_another_python_minor_or_architecture_is_an_error() -> None:
    python = {"path": "/usr/bin/python3.13", "version": "3.13.1", "minor": "3.13"}
    errors, _warnings = preflight.check(pair(node(), node(python=python, arch="x86_64")), GIB)
    assert {fault["subject"] for fault in errors} == {"Python differs", "architecture differs"}


def test_an_old_system_and_a_foreign_python_are_reported_together() -> None:
    python = {"path": "/opt/conda/bin/python3.11", "version": "3.11.7", "minor": "3.11"}
    old = node(systemd=252, python=python)
    errors, _warnings = preflight.check(pair(old, old), GIB)
    assert {(fault["host"], fault["subject"]) for fault in errors} == {
        (host, subject) for host in "ab" for subject in ("systemd", "Python")
    }


def test_ipc_objects_that_vanish_at_logout_are_reported() -> None:
    _errors, warnings = preflight.check(pair(node(), node(linger=False)), GIB)
    assert [(fault["host"], fault["subject"]) for fault in warnings] == [("b", "logind RemoveIPC")]
    assert preflight.check(pair(node(), node(linger=False, remove_ipc=False)), GIB)[1] == []
