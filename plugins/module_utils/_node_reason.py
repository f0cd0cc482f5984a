# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Why a unit ended, in one line, out of what it wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence

# `(EngineCore pid=12) ERROR 07-01 12:00:00 [core.py:1] ` and Ray's `(RayWorkerProc pid=9, ip=1.2.3.4) ` before a text.
_PREFIX = re.compile(r"^(?:\([^()]*pid=[^()]*\)\s*)*(?:(?:ERROR|INFO|WARNING)\s[\d\-]+\s[\d:.]+\s\[[^\]]*\]\s?)?")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# vllm-node prints its name only before an error; fabric-env says so by a word.
_OWN = re.compile(r"^(?:vllm-node [\w\-]+|fabric-env: error): (.+)$")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout)\b:? ?.*$")
# pydantic's error only counts; what is wrong stands in the next lines: its field, if it has one, then the text, before
# the values in square brackets.
_COUNTED = re.compile(r"\d+ validation errors? for [\w.]+$")
_VALUES = re.compile(r" \[type=.*$")
_USAGE = re.compile(r"^(?:vllm|ray|usage)[\w ]*: error: .+$|^Error: .+$")
# What our own programs say when the cause stands in the lines of another one.
ELSEWHERE = "its own lines above say why"
# What only says that something else went wrong before.
_ECHO = (
    "Engine core initialization failed",
    "EngineDeadError",
    "Engine loop is not running",
    "WorkerProc initialization failed",
    "RayTaskError",
    "The actor died",
    "SystemExit",
    "KeyboardInterrupt",
    "CancelledError",
)
# `ray start --block` names what ended, in the lines after this one.
_RAY_LOST = "Some Ray subprocesses exited unexpectedly"
_RAY_LOG = re.compile(r"^[\d\- :,]+\s+ERR \S+ -- ")
_STOPPED = "[shutdown] API server: shutdown triggered"


def plain(line: str) -> str:
    """A line without colours and without the prefixes of processes and loggers."""
    return _PREFIX.sub("", _COLOUR.sub("", line)).strip()


def _whole(texts: Sequence[str], at: int) -> str:
    """An error with the lines that say what it is."""
    found = [texts[at]]
    if _COUNTED.search(texts[at]):
        for text in texts[at + 1 : at + 3]:
            found.append(_VALUES.sub("", text))
            if _VALUES.search(text):
                break
    return ": ".join(found)


def reason(lines: Sequence[str], result: str = "", code: str = "", status: str = "") -> str:
    """The most telling line, else how the process ended.

    result, code and status are systemd's SERVICE_RESULT, EXIT_CODE and EXIT_STATUS.
    """
    if result == "oom-kill":
        return "the kernel ended it for lack of memory (oom-kill); see MemoryMax of the unit and the card's caps"
    texts = [plain(line) for line in lines]
    said = [match[1] for text in texts if (match := _OWN.match(text))]
    if own := [text for text in said if ELSEWHERE not in text]:
        return own[-1]
    # The first error is the cause, the later ones are its consequences.
    errors = [_whole(texts, at) for at, text in enumerate(texts) if _EXCEPTION.match(text) or _USAGE.match(text)]
    if telling := [text for text in errors if not any(echo in text for echo in _ECHO)]:
        return telling[0]
    if any(_STOPPED in text for text in texts):
        return "it was asked to stop"
    if lost := next((texts[n + 1 :] for n, text in enumerate(texts) if _RAY_LOST in text), None):
        return f"a process of Ray ended: {_RAY_LOG.sub('', lost[0])}"
    if errors:
        return f"a process of the engine ended without a word of its own; what noticed it says: {errors[-1]}"
    if result == "success" and (code, status) == ("exited", "1"):
        # So ends `ray start --block` after a SIGTERM.
        return "it was asked to stop"
    if result in ("watchdog", "timeout"):
        return f"it did not follow within its time ({result})"
    if result and not code:
        return f"a step before its start failed ({result})"
    how = {"killed": "by signal", "dumped": "by signal, with a core dump", "exited": "with status"}.get(code, code)
    return f"it ended {how} {status}".strip() if code else "its end is not known"
