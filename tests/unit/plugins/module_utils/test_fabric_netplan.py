# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses for bare ports: who gets which, what is refused, and the way back from a trial."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_netplan as netplan
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_netplan_try as trying

from tests.unit.plugins.module_utils import fabric_trees as trees

ONE, TWIN = "enp1s0f1np1", "enP2p1s0f1np1"
MAC = "4c:bb:47:00:00:1a"
SUBNETS = ["192.168.100.0/24", "192.168.101.0/24"]


def host(root: Path, addresses: dict[str, list[str]], configs: dict[str, str] | None = None) -> dict[str, Any]:
    """A Spark with a cable in port 1 whose interfaces have these addresses."""
    text = f"rocep1s0f1 {ONE} ACTIVE\n 0 v1 fe80:1\nroceP2p1s0f1 {TWIN} ACTIVE\n 0 v1 fe80:2\nrocep1s0f0 en0 DOWN"
    trees.tree(root, text)
    facts = trees.facts(trees.addresses(root, addresses))
    return {"facts": facts, "configs": configs or {}, "macs": {ONE: MAC}}


def interfaces(text: str) -> dict[str, list[str]]:
    parsed = yaml.safe_load(text)
    return {name: entry["addresses"] for name, entry in parsed["network"]["ethernets"].items()}


def test_both_bare_twins_of_both_hosts_get_addresses(tmp_path: Path) -> None:
    hosts = {f"spark-0{n}": host(tmp_path / str(n), {"eth0": [f"10.0.0.{n}/24"]}) for n in (1, 2)}
    files, errors = netplan.plan(hosts, SUBNETS, 9000, {})
    assert errors == []
    for number in (1, 2):
        text = files[f"spark-0{number}"]
        assert interfaces(text) == {ONE: [f"192.168.100.{number}/24"], TWIN: [f"192.168.101.{number}/24"]}
        entry = yaml.safe_load(text)["network"]["ethernets"][ONE]
        assert entry == {
            "dhcp4": False,
            "dhcp6": False,
            "optional": True,
            "mtu": 9000,
            "addresses": [f"192.168.100.{number}/24"],
        }
        assert netplan.ours(text) == {name: values[0] for name, values in interfaces(text).items()}


def test_a_second_plan_keeps_what_the_first_gave(tmp_path: Path) -> None:
    hosts = {f"s{n}": host(tmp_path / str(n), {}) for n in (1, 2)}
    files, _errors = netplan.plan(hosts, SUBNETS, 9000, {})
    again = {}
    for number, name in enumerate(hosts, start=1):
        own = {key: [value] for key, value in netplan.ours(files[name]).items()}
        again[name] = host(tmp_path / f"again{number}", own, {netplan.TARGET: files[name]})
    assert netplan.plan(again, SUBNETS, 9000, {}) == (files, [])


def test_a_forgotten_end_joins_the_rail_that_is_there(tmp_path: Path) -> None:
    hosts = {
        "s1": host(tmp_path / "1", {ONE: ["10.7.0.1/24"], TWIN: ["10.8.0.1/24"]}),
        "s2": host(tmp_path / "2", {ONE: ["10.7.0.2/24"]}),
    }
    files, errors = netplan.plan(hosts, SUBNETS, 9000, {})
    assert errors == []
    assert files["s1"] == ""
    assert interfaces(files["s2"]) == {TWIN: ["10.8.0.2/24"]}


def test_an_address_that_another_host_has_is_passed_over(tmp_path: Path) -> None:
    hosts = {"s1": host(tmp_path / "1", {ONE: ["10.7.0.2/24"], TWIN: ["10.8.0.1/24"]}), "s2": host(tmp_path / "2", {})}
    files, _errors = netplan.plan(hosts, SUBNETS, 9000, {})
    assert interfaces(files["s2"]) == {ONE: ["10.7.0.3/24"], TWIN: ["10.8.0.2/24"]}


def test_link_local_addresses_count_as_none(tmp_path: Path) -> None:
    hosts = {"s1": host(tmp_path / "1", {ONE: ["169.254.3.4/16"], TWIN: []})}
    files, _errors = netplan.plan(hosts, SUBNETS, 9000, {})
    assert set(interfaces(files["s1"])) == {ONE, TWIN}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/netplan/40-cx7.yaml", f"network:\n  ethernets:\n    {ONE}:\n      link-local: [ ipv4 ]\n"),
        ("/etc/netplan/50-any.yaml", f'network:\n  ethernets:\n    "{ONE}":\n      dhcp4: true\n'),
        ("/etc/NetworkManager/system-connections/a.nmconnection", f"[connection]\ninterface-name={ONE}\n"),
        ("/etc/systemd/network/10-fabric.network", f"[Match]\nName=lo {ONE}\n"),
        ("/etc/network/interfaces", f"auto {ONE}\niface {ONE} inet static\n"),
        ("/etc/netplan/50-cloud-init.yaml", f'    a:\n      match: {{macaddress: "{MAC.upper()}"}}\n'),
        ("/etc/NetworkManager/system-connections/b.nmconnection", f"[ethernet]\nmac-address={MAC.upper()}\n"),
        ("/etc/systemd/network/20-rail.network", f"[Match]\nMACAddress=00:00:00:00:00:01 {MAC}\n"),
    ],
)
def test_an_interface_that_something_else_configures_is_refused(tmp_path: Path, path: str, text: str) -> None:
    _files, errors = netplan.plan({"s1": host(tmp_path / "1", {}, {path: text})}, SUBNETS, 9000, {})
    assert [(error["host"], error["subject"]) for error in errors] == [("s1", f"interface {ONE}")]
    assert path in errors[0]["found"]


def test_files_about_other_interfaces_do_not_matter(tmp_path: Path) -> None:
    configs = {
        "/etc/netplan/01-a.yaml": f"network:\n  ethernets:\n    {ONE}x:\n      dhcp4: true\n    enP7s7: {{}}\n",
        "/etc/hosts": f"iface {ONE}",
        # Names and sizes an interface, and gives it no address.
        "/etc/systemd/network/10-rail.link": f"[Match]\nMACAddress={MAC}\n[Link]\nName={ONE}\n",
    }
    assert netplan.plan({"s1": host(tmp_path / "1", {}, configs)}, SUBNETS, 9000, {})[1] == []


def test_a_subnet_of_another_interface_is_refused(tmp_path: Path) -> None:
    hosts = {"s1": host(tmp_path / "1", {"enP7s7": ["192.168.100.77/24"]})}
    _files, errors = netplan.plan(hosts, SUBNETS, 9000, {})
    assert [(error["host"], error["found"]) for error in errors] == [("s1", "enP7s7 has 192.168.100.77 there")]


def test_a_soft_roce_port_is_known_by_its_rows(tmp_path: Path) -> None:
    root = tmp_path / "1"
    trees.tree(root, "rxe0 eth1 ACTIVE\n 0 v2 fe80:1, 1 v2 fe80:2 [eth1.7]")
    (root / "sys/class/infiniband/rxe0/device/net/eth1").rmdir()
    trees.interface(root, "eth1.7", kind="vlan")
    hosts = {"s1": {"facts": trees.facts(trees.addresses(root, {})), "configs": {}, "macs": {}}}
    files, errors = netplan.plan(hosts, SUBNETS, 9000, {})
    assert errors == []
    assert interfaces(files["s1"]) == {"eth1": ["192.168.100.1/24"]}


def test_several_cables_want_names(tmp_path: Path) -> None:
    root = tmp_path / "1"
    trees.tree(root, "\n".join(f"dev{n} eth{n} ACTIVE\n 0 v1 fe80:{n}" for n in range(4)))
    hosts = {"s1": {"facts": trees.facts(trees.addresses(root, {})), "configs": {}, "macs": {}}}
    _files, errors = netplan.plan(hosts, SUBNETS, 9000, {})
    assert "fabric_netplan_addresses" in errors[0]["cure"]
    named = {"s1": {"eth0": "10.1.0.1/24", "eth2": "10.2.0.1/24"}}
    files, errors = netplan.plan(hosts, SUBNETS, 9000, named)
    assert errors == []
    assert interfaces(files["s1"]) == {"eth0": ["10.1.0.1/24"], "eth2": ["10.2.0.1/24"]}


def test_too_few_subnets_are_told(tmp_path: Path) -> None:
    _files, errors = netplan.plan({"s1": host(tmp_path / "1", {})}, SUBNETS[:1], 9000, {})
    assert [error["cure"] for error in errors] == ["add subnets to fabric_netplan_subnets"]


def test_bad_names_are_refused_together(tmp_path: Path) -> None:
    named = {"s1": {"eth0; reboot": "10.0.0.1/24", "eth1": "10.0.0.1", "eth2": "10.0.0.1/33"}, "s9": {}}
    files, errors = netplan.plan({"s1": host(tmp_path / "1", {})}, SUBNETS, 9000, named)
    assert files == {}
    assert len(errors) == 4


class Calls:
    """Stands for systemd and netplan: keeps what was asked, and fails or acts where told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = ""
        self.act: Any = lambda line: None

    def __call__(self, argv: Sequence[str]) -> str:
        line = " ".join(argv)
        self.asked.append(line)
        self.act(line)
        if self.fails and self.fails in line:
            raise trying.TrialError(f"{line}: refused")
        return ""


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def trial(tmp_path: Path, calls: Calls) -> trying.Trial:
    return trying.Trial(str(tmp_path), calls)


NEW = netplan.render({ONE: "192.168.100.1/24"}, 9000)


def test_the_way_back_is_armed_before_anything_changes(trial: trying.Trial, calls: Calls) -> None:
    def look(line: str) -> None:
        if f"--unit={trying.UNIT}.service" in line:
            assert not trial.target.exists()
            assert trial.pending.exists()
            assert trial.script.exists()

    calls.act = look
    assert trial.begin(NEW, {ONE: 1500}, 90)
    kinds = [line.split()[0] + " " + line.split()[1] for line in calls.asked]
    assert kinds == [
        "systemctl enable",
        f"systemd-run --unit={trying.UNIT}.service",
        "netplan generate",
        f"systemd-run --unit={trying.APPLY}",
    ]
    assert "--on-active=90s" in calls.asked[1]
    assert trial.target.read_text(encoding="utf-8") == NEW
    assert stat.S_IMODE(trial.target.stat().st_mode) == 0o600
    script = trial.script.read_text(encoding="utf-8")
    assert f"rm -f {trial.target}" in script
    assert f"ip address flush dev {ONE} scope global" in script
    assert f"ip link set {ONE} mtu 1500" in script


def test_nothing_is_tried_where_nothing_changes(trial: trying.Trial, calls: Calls) -> None:
    trial.target.parent.mkdir(parents=True)
    trial.target.write_text(NEW, encoding="utf-8")
    trial.target.chmod(0o600)
    assert not trial.begin(NEW, {}, 90)
    assert calls.asked == []
    trial.target.chmod(0o644)
    assert trial.begin(NEW, {}, 90), "a file that others can read is mended"


def test_a_file_that_netplan_refuses_is_taken_back_at_once(trial: trying.Trial, calls: Calls) -> None:
    calls.fails = "netplan generate"
    with pytest.raises(trying.TrialError, match="refused"):
        trial.begin(NEW, {}, 90)
    assert str(trial.script) in calls.asked
    assert not trial.pending.exists()


def test_a_second_trial_waits_for_the_first(trial: trying.Trial) -> None:
    trial.begin(NEW, {}, 90)
    with pytest.raises(trying.TrialError, match="another trial"):
        trial.begin("", {}, 90)


def test_it_is_kept_when_applied_and_sound(trial: trying.Trial, calls: Calls) -> None:
    trial.begin(NEW, {}, 90)
    complaints = ["not yet", "not yet", ""]
    trial.applied.write_text("0\n", encoding="utf-8")
    with pytest.raises(trying.TrialError, match="not settled"):
        trial.confirm()
    assert trial.pending.exists()
    trial.settle(lambda: complaints.pop(0), 5, lambda _seconds: None)
    assert complaints == []
    assert trial.pending.exists(), "only a fresh connection may keep it"
    trial.confirm()
    assert not trial.pending.exists()
    assert not trial.unit.exists()
    assert str(trial.script) not in calls.asked


@pytest.mark.parametrize(("code", "complaint", "word"), [("1", "", "broken yaml"), ("0", "no address", "no address")])
def test_it_is_taken_back_when_it_fails(
    trial: trying.Trial, calls: Calls, code: str, complaint: str, word: str
) -> None:
    trial.begin(NEW, {}, 90)
    trial.applied.write_text(f"{code}\n", encoding="utf-8")
    Path(f"{trial.applied}.log").write_text("broken yaml", encoding="utf-8")
    with pytest.raises(trying.TrialError, match=word):
        trial.settle(lambda: complaint, 0, lambda _seconds: None)
    assert str(trial.script) in calls.asked
    assert not trial.pending.exists()


def test_a_trial_taken_back_meanwhile_is_not_confirmed(trial: trying.Trial) -> None:
    trial.begin(NEW, {}, 90)
    trial.pending.unlink()
    for act in (lambda: trial.settle(lambda: "", 5), trial.confirm):
        with pytest.raises(trying.TrialError, match="taken back before"):
            act()
    assert not trial.settled.exists()


def test_taking_it_out_flushes_the_addresses_and_can_go_back(trial: trying.Trial, calls: Calls) -> None:
    trial.target.parent.mkdir(parents=True)
    trial.target.write_text(NEW, encoding="utf-8")
    assert trial.begin("", {}, 90)
    assert not trial.target.exists()
    assert f"ip address flush dev {ONE} scope global" in calls.asked[-1]
    assert f"install -m 600 {trial.before} {trial.target}" in trial.script.read_text(encoding="utf-8")
    assert trial.before.read_text(encoding="utf-8") == NEW


def test_configurations_are_read_from_their_places(tmp_path: Path) -> None:
    trees.put(tmp_path / "etc/netplan/a.yaml", "network: {}")
    trees.put(tmp_path / "etc/systemd/network/b.network", "[Match]")
    trees.put(tmp_path / "etc/hosts", "127.0.0.1")
    trees.put(tmp_path / "sys/class/net" / ONE / "address", MAC)
    assert trying.read_macs([ONE, "lo"], str(tmp_path)) == {ONE: MAC}
    assert trying.read_configs(str(tmp_path)) == {
        "/etc/netplan/a.yaml": "network: {}\n",
        "/etc/systemd/network/b.network": "[Match]\n",
    }
