# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Bring units to a state: start what stands still, restart what is stale, leave alone what serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._node_journal import lines
from ._units import MARK, Scope, UnitError, cause, outdated, show

JOURNAL_LINES = 25


@dataclass(frozen=True)
class Step:
    """One thing to do to one unit."""

    unit: str
    verb: str  # remove, reload, enable, disable, start, restart, stop
    why: str


def _start_verb(scope: Scope, unit: str, now: Mapping[str, str]) -> str:
    """Whether a start is enough. A unit on its way up from what lies on the disk is only waited for."""
    active = now.get("ActiveState", "inactive")
    if active in ("inactive", "failed"):
        return "start"
    if active == "activating" and not outdated(scope, unit):
        return "start"
    return "restart"


def refuse_both_scopes(scope: Scope, units: Sequence[str], predicted: bool) -> None:
    """A unit in both scopes would be two engines at the next boot.

    `predicted`: only look at what is not ours, since in check mode ours have only been said to go.
    """
    other = Scope("user" if scope.name == "system" else "system", scope.uid)
    found = [path for unit in units if (path := other.unit_dir / unit).exists()]
    if predicted:
        found = [path for path in found if MARK not in path.read_text(encoding="utf-8", errors="replace")]
    if found:
        raise UnitError(
            f"units of the scope {other.name} are there: {', '.join(map(str, found))}; expected none beside those of "
            f"the scope {scope.name}. Ours are removed by playbooks/stop.yml -e units_scope={other.name} "
            "-e stop_remove=true; stop and remove others by hand"
        )


def plan(
    scope: Scope,
    units: Sequence[str],
    state: str,
    enabled: bool | None,
    absent: Sequence[str] = (),
    *,
    present_only: bool = False,
    predicted: bool = False,
) -> list[Step]:
    """What has to be done, in order: first those that are to go, then the others."""
    if state == "started":
        refuse_both_scopes(scope, units, predicted)
    units = [unit for unit in units if unit not in absent]
    states = show(scope, [*units, *absent])
    if present_only:
        units = [unit for unit in units if states.get(unit, {}).get("LoadState", "not-found") != "not-found"]
    steps: list[Step] = []
    for unit in absent:
        if states.get(unit, {}).get("LoadState", "not-found") != "not-found" or (scope.unit_dir / unit).exists():
            steps.append(Step(unit, "remove", "has no place in this deployment"))
    if any(states.get(unit, {}).get("NeedDaemonReload") == "yes" for unit in units):
        steps.append(Step("", "reload", "a unit file changed"))
    for unit in units:
        now = states.get(unit, {})
        is_enabled = now.get("UnitFileState") == "enabled"
        if enabled is not None and enabled != is_enabled and (enabled or now.get("LoadState") == "loaded"):
            steps.append(Step(unit, "enable" if enabled else "disable", f"is {now.get('UnitFileState') or 'absent'}"))
    for unit in units if state != "stopped" else reversed(units):
        now = states.get(unit, {})
        if state == "started" and (why := cause(scope, unit, now)):
            steps.append(Step(unit, _start_verb(scope, unit, now), why))
        if state == "stopped" and now.get("ActiveState", "inactive") not in ("inactive", "failed"):
            steps.append(Step(unit, "stop", now["ActiveState"]))
    return steps


def _tail(scope: Scope, unit: str) -> str:
    return "\n".join(lines(scope.name, unit, JOURNAL_LINES)) or "(this user may not read it)"


def _remove(scope: Scope, unit: str, timeout: float) -> None:
    """Stop a unit, take it out of the boot and delete its file."""
    scope.call("stop", unit, timeout=timeout, check=False)
    scope.call("disable", unit, check=False)
    (scope.unit_dir / unit).unlink(missing_ok=True)
    scope.call("daemon-reload")
    scope.call("reset-failed", unit, check=False)


def carry_out(scope: Scope, steps: Sequence[Step], timeout: float) -> None:
    """Do the steps; the first that fails raises UnitError with the end of the unit's journal."""
    for step in steps:
        if step.verb == "reload":
            scope.call("daemon-reload")
            continue
        if step.verb == "remove":
            _remove(scope, step.unit, timeout)
            continue
        if step.verb in ("enable", "disable"):
            scope.call(step.verb, step.unit)
            continue
        if step.verb in ("start", "restart"):
            # A unit that gave up after its limit starts only after this.
            scope.call("reset-failed", step.unit, check=False)
        try:
            scope.call(step.verb, step.unit, timeout=timeout)
        except UnitError as err:
            state = show(scope, [step.unit]).get(step.unit, {})
            raise UnitError(
                f"{step.unit} did not {step.verb} ({err}); it is {state.get('ActiveState')}, "
                f"result {state.get('Result')}. The end of its journal:\n{_tail(scope, step.unit)}"
            ) from err
