# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The program `fabric-env`: resolves the fabric at every start of a unit and becomes the unit's command.

It imports little, and late: a start that has nothing to wait for takes under 60 ms.
"""

# A program of its own, run by units without Ansible.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import os
import sys
import time

from . import _fabric_config, _fabric_state, _roce_env
from ._roce import read, resolve
from ._roce_problem import (
    AMBIGUOUS,
    CONFIG,
    NO_ADDRESS,
    NO_COMMON_INDEX,
    NO_DEVICE,
    NO_ROW,
    PIN,
    PORT_DOWN,
    TRANSIENT,
    as_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ._roce_types import Facts, Problem, Resolution

USAGE = """usage: fabric-env [--config FILE] [--state FILE] run [--expand] -- COMMAND [ARGUMENT...]
       fabric-env [--config FILE] [--state FILE] show [--json]
       fabric-env [--config FILE] check [--json]

  run    resolve the fabric, wait for it if need be, set the environment, and become COMMAND;
         with --expand, {VLLM_HOST_IP} in the arguments stands for the resolved address
  show   print the GID tables with the chosen rows marked, the environment, and what moved
  check  reach every peer over every rail with packets of the full MTU

exit codes: 0 done (run: the command's own code), 2 usage, 20 configuration, 21 no RDMA device, 22 no link,
  23 no address, 24 no RoCE v2 row, 25 no common index, 26 a pin contradicts the table, 27 ambiguous,
  28 time over while waiting for a link, an address or a row, 29 a peer is not reached,
  126 COMMAND cannot be executed, 127 there is no COMMAND
"""
OK, USAGE_ERROR, TIME_OVER, UNREACHED, NOT_EXECUTABLE, NOT_FOUND = 0, 2, 28, 29, 126, 127
CODES = {
    CONFIG: 20,
    NO_DEVICE: 21,
    PORT_DOWN: 22,
    NO_ADDRESS: 23,
    NO_ROW: 24,
    NO_COMMON_INDEX: 25,
    PIN: 26,
    AMBIGUOUS: 27,
}
PLACEHOLDER = "{VLLM_HOST_IP}"
# The first looks come quickly, for a link that is just coming up; a minute later a second is early enough.
POLL_FIRST_S, POLL_LONGEST_S = 0.1, 1.0


class Clock:
    """Time and waiting, in one place so that a test can hold them."""

    def now(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def say(text: str) -> None:
    """One line for the journal."""
    print(f"fabric-env: {text}", file=sys.stderr, flush=True)


def look(config: Mapping[str, Any]) -> tuple[Facts, Resolution]:
    """One look at the host: its facts, and what follows from them."""
    facts = read(config["root"])
    if config["mode"] == "single":
        return facts, _single(facts, config["addresses"])
    return facts, resolve(facts, config["addresses"], config["subnets"], config["gid_mode"], config["pins"])


def _single(facts: Facts, addresses: list[str]) -> Resolution:
    address = addresses[0] if addresses else "127.0.0.1"
    holders = [
        name
        for name, netdev in facts["netdevs"].items()
        if any(entry["address"] == address for entry in netdev["addresses"])
    ]
    environment = _roce_env.single(address, holders[0] if holders else "")
    return {"rails": [], "environment": environment, "warnings": [], "errors": []}


def wait(
    config: Mapping[str, Any],
    clock: Clock,
    glance: Callable[[Mapping[str, Any]], tuple[Facts, Resolution]] = look,
) -> tuple[Resolution, float, bool]:
    """Look until the fabric is there, until what is wrong would not mend itself, or until the time is over.

    Returns the last resolution, the seconds waited, and whether the time was over.
    """
    start, pause, told = clock.now(), POLL_FIRST_S, ""
    while True:
        _facts, resolution = glance(config)
        waited = clock.now() - start
        errors = resolution["errors"]
        if not errors or any(error["fault"] not in TRANSIENT for error in errors):
            return resolution, waited, False
        left = config["wait_s"] - waited
        if left <= 0:
            return resolution, waited, config["wait_s"] > 0
        reasons = "; ".join(brief(error) for error in errors)
        if reasons != told:
            say(f"waiting, {left:.0f} s at most: {reasons}")
            told = reasons
        clock.sleep(min(pause, left))
        pause = min(pause * 1.5, POLL_LONGEST_S)


def brief(error: Problem) -> str:
    """An error in a few words, for the line that says what is waited for."""
    found = error["found"]
    return f"{error['subject']}: " + (f"expected {error['expected']}" if "\n" in found else found)


def run(config: Mapping[str, Any], state_path: str, command: Sequence[str], expand: bool, clock: Clock) -> int:
    """Resolve and become the command; the return value is the exit code where it does not come to that."""
    resolution, waited, over = wait(config, clock)
    environ = {name: value for name, value in os.environ.items() if name not in _roce_env.NAMES}
    old = _fabric_state.load(state_path)
    state = _fabric_state.advance(old, resolution, time.time(), waited, _unit())
    if resolution["errors"]:
        # What was chosen before stays known, so that a move is still seen when the fabric is back.
        state["rails"] = old.get("rails", [])
    _keep(state_path, state)
    for warning in resolution["warnings"]:
        say(f"warning: {as_text(warning)}")
    if resolution["errors"]:
        return _refuse(resolution["errors"], waited, over)
    for rail in state["rails"]:
        news = "" if rail in old.get("rails", []) else _fabric_state.moved_text(rail)
        how = "" if _roce_env.INDEX in resolution["environment"] else " by range"
        way = f"{rail['address']} on {rail['netdev']}: {rail['device']}"
        say(f"{way}, GID index {rail['gid_index']}{how} {news}".rstrip())
    environ |= resolution["environment"]
    address = environ["VLLM_HOST_IP"]
    argv = [part.replace(PLACEHOLDER, address) for part in command] if expand else list(command)
    try:
        os.execvpe(argv[0], argv, environ)
    except FileNotFoundError:
        say(f"{argv[0]}: no such program in PATH {environ.get('PATH', '')}")
        return NOT_FOUND
    except OSError as error:
        say(f"{argv[0]}: {error.strerror}")
        return NOT_EXECUTABLE


def _refuse(errors: Sequence[Problem], waited: float, over: bool) -> int:
    for error in errors:
        say(f"error: {as_text(error)}")
    # The last line says it all: a status quotes it.
    reasons = "; ".join(brief(error) for error in errors)
    say(f"gave up after {waited:.0f} s: {reasons}" if over else f"not started: {reasons}")
    return TIME_OVER if over else min(CODES[error["fault"]] for error in errors)


def _keep(path: str, state: dict[str, Any]) -> None:
    try:
        _fabric_state.save(path, state)
    except OSError as error:
        # A full disk must not keep the engine from starting; the state only serves the status.
        say(f"warning: {path}: {error.strerror}; the status will not show this start")


def _unit() -> str:
    """The unit this process was started by, out of its control group."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as stream:  # noqa: PTH123
            parts = stream.read().strip().rsplit("/", 1)
    except OSError:
        return ""
    return parts[-1] if parts[-1].endswith(".service") else ""


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Exit codes are in USAGE."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = {"--config": "", "--state": ""}
    while len(arguments) > 1 and arguments[0] in options:
        options[arguments[0]] = arguments[1]
        del arguments[:2]
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if verb in ("-h", "--help"):
        print(USAGE, end="")
        return OK
    expand, command = "--expand" in rest[:1], rest[rest.index("--") + 1 :] if "--" in rest else []
    well_formed = {
        "run": bool(command) and rest[: rest.index("--")] in ([], ["--expand"]),
        "show": rest in ([], ["--json"]),
        "check": rest in ([], ["--json"]),
    }
    if not well_formed.get(verb):
        print(USAGE, end="", file=sys.stderr)
        return USAGE_ERROR
    state_path = options["--state"] or _fabric_state.default_path()
    try:
        config = _fabric_config.load(options["--config"] or _fabric_config.default_path(os.environ))
    except _fabric_config.ConfigError as error:
        say(str(error))
        return CODES[CONFIG]
    if verb == "run":
        return run(config, state_path, command, expand, Clock())
    from . import _fabric_show  # only people wait for these

    return (_fabric_show.show if verb == "show" else _fabric_show.check)(config, state_path, bool(rest))


if __name__ == "__main__":
    sys.exit(main())
