# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as a play calls it: arguments, result, failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.dgx_spark.vllm.plugins.modules import roce_gid_info

from tests.unit.plugins.module_utils import fabric_trees as trees


def call(capsys: pytest.CaptureFixture[str], **arguments: Any) -> tuple[int, dict[str, Any]]:
    with patch_module_args(arguments), pytest.raises(SystemExit) as stop:
        roce_gid_info.main()
    return int(str(stop.value.code)), json.loads(capsys.readouterr().out)


def test_a_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trees.spark(tmp_path, 1)
    code, result = call(capsys, root=str(tmp_path), _ansible_check_mode=True)
    assert (code, result["changed"]) == (0, False)
    assert [rail["gid_index"] for rail in result["rails"]] == [3, 3]
    assert result["environment"]["NCCL_IB_GID_INDEX"] == "3"
    assert "warnings" not in result
    assert result["table"].count(">") == 2
    assert "firewall" not in result


def test_names_callers_rely_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trees.spark(tmp_path, 1, rails=1)
    _code, result = call(capsys, root=str(tmp_path), subnets=["192.168.100.0/24"], gid_mode="pin")
    (rail,) = result["rails"]
    wanted = {"address", "netdev", "device", "port", "state", "mtu", "speed_mbps", "gid_index", "rows"}
    assert wanted <= set(rail)
    assert [warning["host"] for warning in result["warning_details"]] == [result["facts"]["hostname"]]
    _code, by_address = call(capsys, root=str(tmp_path), addresses=["192.168.100.1"])
    assert by_address["rails"][0]["device"] == "rocep1s0f1"


def test_a_failure_has_message_errors_and_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trees.spark(tmp_path, 1, index=5)
    code, result = call(capsys, root=str(tmp_path), host="spark-01", pins={"index": 3})
    assert code == 1
    assert result["errors"][0]["host"] == "spark-01"
    assert result["failed"]
    assert "pin index 3" in result["msg"]
    assert [error["fault"] for error in result["errors"]] == ["pin"]
    assert "192.168.100.1" in result["table"]


@pytest.mark.parametrize("index", ["", "auto", "010", "0x3"])
def test_c05_text_never_becomes_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str], index: str) -> None:
    trees.spark(tmp_path, 1)
    code, result = call(capsys, root=str(tmp_path), pins={"index": index})
    assert code == 1
    assert result["environment"] == {}


def test_bad_choices_are_refused_by_the_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ({"gid_mode": "maybe"}, {"pins": {"speed": 3}}, {"ports": ["http"]}):
        code, result = call(capsys, root=str(tmp_path), **arguments)
        assert code == 1, arguments
        assert "errors" not in result


def test_hosts_are_checked_against_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = {f"spark-0{n}": dict(trees.spark(tmp_path / str(n), n, mtu=9000 if n == 1 else 1500)) for n in (1, 2)}
    code, result = call(capsys, root=str(tmp_path / "1"), hosts=hosts, host_pins={"spark-01": {"index": 3}})
    assert code == 1
    assert {error["fault"] for error in result["errors"]} == {"mtu"}
    assert "spark-01 enp1s0f1np1 9000, spark-02 enp1s0f1np1 1500" in result["msg"]
    assert result["hosts"]["subnets"] == ["192.168.100.0/24", "192.168.101.0/24"]


def test_the_firewall_of_a_captured_tree_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trees.spark(tmp_path, 1, rails=1)
    (tmp_path / "ufw-status.txt").write_text("Status: active\nDefault: deny (incoming)\n\n22/tcp  ALLOW IN  Anywhere\n")
    code, result = call(capsys, root=str(tmp_path), ports=[6379])
    assert code == 1
    assert result["firewall"]["ufw"]["read"]
    assert "TCP 6379, 32768-60999 is blocked from 192.168.100.0/24" in result["msg"]


def test_documentation_and_arguments_agree() -> None:
    options = yaml.safe_load(roce_gid_info.DOCUMENTATION)["options"]
    assert sorted(options) == sorted(roce_gid_info.ARGUMENTS)
    for name, spec in roce_gid_info.ARGUMENTS.items():
        assert options[name]["type"] == spec["type"]
        assert options[name].get("default") == spec.get("default")
    assert yaml.safe_load(roce_gid_info.RETURN)["rails"]["sample"]
    assert len(yaml.safe_load(roce_gid_info.EXAMPLES)) == 4
