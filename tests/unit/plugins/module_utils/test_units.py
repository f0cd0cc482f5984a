"""What a unit was started from is compared with what lies on the disk, and only a difference costs a restart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _unit_apply, _units
from ansible_collections.dgx_spark.vllm.plugins.module_utils._units import Scope, fingerprint, inputs, parse_show

UNIT = "[Unit]\nDescription=x\n\n[X-Vllm]\nInput={a}\nInput={b}\n"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/inner").write_text("2")
    path = tmp_path / "x.service"
    path.write_text(UNIT.format(a=tmp_path / "a", b=tmp_path / "b"))
    return path


def test_inputs_are_those_of_the_section(unit: Path) -> None:
    assert [path.name for path in inputs(unit.read_text())] == ["a", "b"]
    assert inputs("[Service]\nInput=/not/this\n") == []


@pytest.mark.parametrize("change", ["unit", "input", "folder", "drop-in", "input gone"])
def test_every_cause_changes_the_sum(unit: Path, change: str) -> None:
    before = fingerprint(unit)
    assert before == fingerprint(unit)
    if change == "unit":
        unit.write_text(unit.read_text() + "#")
    elif change == "input":
        (unit.parent / "a").write_text("other")
    elif change == "folder":
        (unit.parent / "b/inner").write_text("other")
    elif change == "input gone":
        (unit.parent / "a").unlink()
    else:
        unit.with_name("x.service.d").mkdir()
        unit.with_name("x.service.d").joinpath("own.conf").write_text("[Service]\n")
    assert fingerprint(unit) != before


def test_compiled_code_is_no_cause(unit: Path) -> None:
    before = fingerprint(unit)
    (unit.parent / "b/__pycache__").mkdir()
    (unit.parent / "b/__pycache__/inner.cpython-312.pyc").write_bytes(b"code")
    assert fingerprint(unit) == before


def test_show_is_read_by_unit() -> None:
    text = "Id=a.service\nActiveState=active\n\nId=b.service\nActiveState=failed\nResult=exit-code=1\n"
    assert parse_show(text)["b.service"]["Result"] == "exit-code=1"
    assert parse_show(text)["a.service"]["ActiveState"] == "active"


class Fake:
    """What systemd and the disk say, as data."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **states: dict[str, str]) -> None:
        self.states = {name.replace("_", "-") + ".service": {"LoadState": "loaded", **s} for name, s in states.items()}
        self.stamps: dict[str, str] = {}
        monkeypatch.setattr(
            _unit_apply, "show", lambda scope, names: {n: self.states[n] for n in names if n in self.states}
        )
        monkeypatch.setattr(_units, "running_stamp", lambda scope, name: self.stamps.get(name, ""))
        monkeypatch.setattr(_units, "_current", lambda scope, name: "now")

    def steps(self, units: list[str], state: str = "started", absent: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        plan = _unit_apply.plan(Scope("system", os.getuid()), units, state, True, absent)
        return [(step.verb, step.unit) for step in plan]


ACTIVE = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}


def test_what_runs_from_what_lies_there_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, a=ACTIVE)
    fake.stamps = {"a.service": "now"}
    assert fake.steps(["a.service"]) == []


def test_a_change_restarts_only_what_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, a=ACTIVE, b={**ACTIVE, "NeedDaemonReload": "yes"})
    fake.stamps = {"a.service": "now", "b.service": "before"}
    assert fake.steps(["a.service", "b.service"]) == [("reload", ""), ("restart", "b.service")]


@pytest.mark.parametrize(
    ("state", "stamp", "verb"),
    [
        ("inactive", "", "start"),
        ("failed", "before", "start"),
        ("activating", "now", "start"),
        ("activating", "", "start"),
        ("activating", "before", "restart"),
        ("active", "", "restart"),
    ],
)
def test_a_start_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch, state: str, stamp: str, verb: str) -> None:
    fake = Fake(monkeypatch, a={**ACTIVE, "ActiveState": state})
    fake.stamps = {"a.service": stamp}
    assert fake.steps(["a.service"]) == [(verb, "a.service")]


def test_a_unit_in_the_other_scope_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, a=ACTIVE)
    monkeypatch.setattr(Scope, "unit_dir", property(lambda self: tmp_path / self.name))
    (tmp_path / "user").mkdir()
    (tmp_path / "user/a.service").write_text("")
    with pytest.raises(_units.UnitError, match=r"units of the scope user are there.*stop_remove=true"):
        fake.steps(["a.service"])
    assert fake.steps(["a.service"], "stopped") == [("stop", "a.service")]


def test_stops_go_backwards_and_the_absent_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, a=ACTIVE, b=ACTIVE, old=ACTIVE)
    assert fake.steps(["a.service"], "stopped", ("a.service",)) == [("remove", "a.service")]
    assert fake.steps(["a.service", "b.service"], "stopped", ("old.service", "never.service")) == [
        ("remove", "old.service"),
        ("stop", "b.service"),
        ("stop", "a.service"),
    ]
