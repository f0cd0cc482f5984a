# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send files from the controller to a node by rsync, over a connection like Ansible's own (controller only)."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree import check
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_deep import sums
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import Meter, line
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging import private
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils._model_screen import Screen

_DONE = re.compile(rb"^\s*([\d,]+)\s+\d+%")


@dataclass
class Listing:
    """What the controller has of one model."""

    files: list[dict[str, Any]]
    faults: list[str]


def listing(path: str, screen: Screen) -> Listing:
    """Names, sizes and sums of a model's files on the controller."""
    root = Path(path).expanduser()
    tree = check(root)
    if not tree.complete:
        return Listing([], [f"{path}/{p['file']}: {p['found']}, expected {p['expected']}" for p in tree.problems])
    names = [name for name in tree.files if not private(name)]
    meter = Meter(title=root.name)
    meter.phase("hashing on the controller", sum(tree.files[name].size for name in names))
    files = []
    for name, value in sums(root, names, meter.add):
        screen.show(line(meter.snapshot()))
        if isinstance(value, OSError):
            return Listing([], [f"{path}/{name}: {value.strerror}"])
        files.append({"path": name, "size": tree.files[name].size, "sha256": value})
    return Listing(files, [])


class Push:
    """rsync to one node."""

    def __init__(self, connection: Any, variables: dict[str, Any], screen: Screen) -> None:
        self._connection = connection
        self._variables = variables
        self._screen = screen

    def _shell(self) -> tuple[list[str], str]:
        """Arguments that name the remote shell, and what stands before the remote path."""
        if self._connection.transport == "local":
            return [], ""
        option = self._connection.get_option
        words = [str(option("ssh_executable") or "ssh")]
        for name in ("ssh_args", "ssh_common_args", "ssh_extra_args"):
            words += shlex.split(option(name) or "")
        if not option("host_key_checking"):
            words += ["-o", "StrictHostKeyChecking=no"]
        for flag, value in (("-p", option("port")), ("-i", option("private_key_file")), ("-l", option("remote_user"))):
            words += [flag, str(value)] if value else []
        words += ["-o", "BatchMode=yes", "-o", "ControlPath=none"]
        host = str(option("host"))
        return [f"--rsh={shlex.join(words)}"], f"[{host}]:" if ":" in host else f"{host}:"

    def send(self, source: str, paths: list[str], into: str, total: int, name: str) -> str:
        """Send the files into the folder; what an earlier call left is gone on with. Returns an error or nothing."""
        if self._connection.transport not in ("ssh", "local"):
            return f"connection {self._connection.transport}: files can be sent over ssh only"
        rsync = shutil.which("rsync")
        if rsync is None:
            return "rsync is not installed on the controller"
        shell, prefix = self._shell()
        meter = Meter(title=f"staging {name}")
        meter.phase("from the controller", total)
        command = [rsync, "--copy-links", "--times", "--append", "--info=progress2", "--outbuf=N"]
        command += ["--files-from=-", "--from0", "--secluded-args", *shell, f"{Path(source).expanduser()}/"]
        with tempfile.TemporaryFile() as listed, tempfile.TemporaryFile() as said:
            listed.write(b"\0".join(path.encode("utf-8", "surrogateescape") for path in paths))
            listed.seek(0)
            process = subprocess.Popen(
                [*command, f"{prefix}{into}/"], stdin=listed, stdout=subprocess.PIPE, stderr=said, bufsize=0
            )
            assert process.stdout is not None
            rest = b""
            while block := process.stdout.read(4096):
                *told, rest = (rest + block).split(b"\r")
                for text in told:
                    if match := _DONE.match(text):
                        meter.at(int(match[1].replace(b",", b"")))
                        self._screen.show(line(meter.snapshot()))
            code = process.wait()
            said.seek(0)
            error = said.read().decode("utf-8", "replace").strip()
        return f"rsync ended with {code}: {error}" if code else ""
