# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulator's control socket: one command, one answer, always within a time."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.vm.settings import VmError


class Monitor:
    def __init__(self, connection: socket.socket, label: str) -> None:
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8")
        self._label = label
        self._answer()  # the greeting
        self.execute("qmp_capabilities")

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise VmError(f"{self._label}: the emulator did not answer in time") from None
        except ConnectionError:
            line = ""
        if not line:
            raise VmError(f"{self._label}: the emulator closed its control socket")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def execute(self, command: str, seconds: float = 10, **arguments: object) -> Any:
        self._connection.settimeout(seconds)
        with contextlib.suppress(ConnectionError):  # what became of it the answer says
            self._connection.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while "return" not in (answer := self._answer()):
            if "error" in answer:
                raise VmError(f"{self._label}: {command}: {answer['error'].get('desc')}")
        return answer["return"]

    def human(self, line: str, seconds: float) -> None:
        """A command of the human monitor; it answers with nothing when all is well."""
        text = str(self.execute("human-monitor-command", seconds, **{"command-line": line})).strip()
        if text:
            raise VmError(f"{self._label}: {line}: {text}")


@contextlib.contextmanager
def connect(path: Path) -> Iterator[Monitor]:
    # Through the folder's descriptor, since a socket's path may have no more than 107 characters.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(10)
            try:
                connection.connect(f"/proc/self/fd/{folder}/{path.name}")
            except OSError as error:
                raise VmError(f"{path}: no emulator listens there ({error.strerror})") from None
            yield Monitor(connection, path.name)
    finally:
        os.close(folder)
