# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What a node is: one probe that reads ten things, instead of ten tasks that read one each.

Everything is read below a root directory, so that a folder of files can stand for a machine. Programs (nvidia-smi,
nvcc) are looked for in the PATH that the units get, never in that of a login shell.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ._units import MARK

UNIT_PATH = "/usr/local/cuda/bin:/usr/bin:/bin"
"""PATH of the units behind the release's own bin (recipe.md: ninja and nvcc are looked for at the first forward)."""

PROGRAM_TIMEOUT_S = 20
MOST_CONFIG_BYTES = 1 << 20
MOST_MODELS = 64


def _text(path: Path) -> str:
    """The file's text without surrounding space, or an empty string where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def parse_os_release(text: str) -> dict[str, str]:
    """The keys ID, VERSION_ID and PRETTY_NAME of an os-release file, lower-cased."""
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.lower(): pairs.get(key, "").strip("\"'") for key in ("ID", "VERSION_ID", "PRETTY_NAME")}


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes of memory in all and available now, of /proc/meminfo (which counts in KiB)."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE))
    return {
        "total": int(found.get("MemTotal", 0)) * 1024,
        "available": int(found.get("MemAvailable", 0)) * 1024,
    }


def parse_limits(text: str) -> dict[str, dict[str, int | None]]:
    """Soft and hard limits of a /proc/PID/limits text for locked memory (bytes) and open files; None: unlimited."""
    limits: dict[str, dict[str, int | None]] = {}
    for key, title in (("memlock", "Max locked memory"), ("nofile", "Max open files")):
        match = re.search(rf"^{title}\s+(\S+)\s+(\S+)", text, re.MULTILINE)
        if match:
            soft, hard = (None if word == "unlimited" else int(word) for word in match.groups())
            limits[key] = {"soft": soft, "hard": hard}
    return limits


def parse_listening(*tables: str) -> list[int]:
    """Ports with a listening socket, of /proc/net/tcp and tcp6 texts (state 0A), sorted."""
    ports = set()
    for table in tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A":
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return sorted(ports)


def parse_remove_ipc(texts: list[str]) -> bool:
    """Whether logind removes a user's IPC objects at logout: the last RemoveIPC= wins, systemd's default is yes."""
    value = "yes"
    for text in texts:
        for match in re.finditer(r"^\s*RemoveIPC\s*=\s*(\S+)", text, re.MULTILINE):
            value = match.group(1)
    return value.lower() in ("yes", "true", "1", "on")


def parse_nvcc(text: str) -> str:
    """The release of `nvcc --version`, such as 12.9, or an empty string."""
    match = re.search(r"release (\d+\.\d+)", text)
    return match.group(1) if match else ""


def parse_gpus(text: str) -> list[dict[str, str]]:
    """GPUs of `nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader`."""
    gpus = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3:
            gpus.append({"name": fields[0], "driver": fields[1], "compute_cap": fields[2]})
    return gpus


def _run(argv: list[str], path: str) -> str:
    """Standard output of a program found in `path`, or an empty string where it is absent, fails or takes too long."""
    program = shutil.which(argv[0], path=path)
    if program is None:
        return ""
    env = {"PATH": path, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            [program, *argv[1:]], capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S, env=env, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _user_manager_pid(root: Path, uid: int) -> int | None:
    """The process id of the user's systemd manager, or None where it does not run."""
    for status in root.glob("proc/[0-9]*/status"):
        text = _text(status)
        if text.startswith("Name:\tsystemd\n") and re.search(rf"^Uid:\t{uid}\t", text, re.MULTILINE):
            return int(status.parent.name)
    return None


def _config_texts(root: Path, name: str) -> list[str]:
    """The texts of a systemd configuration file and its drop-ins, in the order in which systemd reads them."""
    bases = ("usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd")
    mains = [text for base in bases if (text := _text(root / base / name))]
    drops = sorted((p for base in bases for p in root.glob(f"{base}/{name}.d/*.conf")), key=lambda p: p.name)
    return mains[-1:] + [_text(path) for path in drops]


def disk_free(path: Path) -> int:
    """Bytes that an ordinary user can still write where `path` is or will be."""
    while not path.exists() and path != path.parent:
        path = path.parent
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def _table(path: Path) -> dict[str, Any]:
    """A small JSON file that holds a table; empty where it is anything else."""
    try:
        found = json.loads(path.read_bytes()) if path.stat().st_size <= MOST_CONFIG_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def staged_configs(models_root: Path) -> dict[str, dict[str, Any]]:
    """What the config.json of each model's folder says, by the folder's name."""
    paths = sorted(models_root.glob("[!.]*/config.json"))[:MOST_MODELS]
    return {path.parent.name: config for path in paths if (config := _table(path))}


def unit_files(root: Path, home: Path) -> dict[str, list[str]]:
    """Units of the deployment that lie in each scope's folder. One of the same name that is somebody else's is none."""
    folders = {"user": home / ".config/systemd/user", "system": root / "etc/systemd/system"}
    return {
        scope: sorted(path.name for path in folder.glob("vllm-*.service") if MARK in _text(path))
        for scope, folder in folders.items()
    }


def probe(root: str, unit_path: str, disk_paths: list[str], state_root: str, models_root: str = "") -> dict[str, Any]:
    """Everything that the roles must know of a node before they decide anything.

    root: directory that stands for `/` in all reads of files; unit_path: where programs are looked for;
    disk_paths: where free space matters, absolute or relative to the home folder; state_root: the deployment's own
    folder, relative to the home folder; models_root: folder of the models, likewise or absolute, empty for none.
    Sizes are bytes. Nothing is written, and no privilege is needed.
    """
    base = Path(root)
    user = pwd.getpwuid(os.getuid())
    home = Path(user.pw_dir)
    manager = _user_manager_pid(base, user.pw_uid)
    limits = parse_limits(_text(base / f"proc/{manager}/limits")) if manager else {}
    current = home / state_root / "current"
    systemd = re.search(r"^systemd (\d+)", _run(["systemctl", "--version"], unit_path), re.MULTILINE)
    query = "--query-gpu=name,driver_version,compute_cap"
    executable = os.path.realpath(sys.executable)
    return {
        "user": user.pw_name,
        "uid": user.pw_uid,
        "gid": user.pw_gid,
        "home": str(home),
        "hostname": platform.node(),
        "os": parse_os_release(_text(base / "etc/os-release")),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "python": {
            "path": f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
            if executable.startswith("/usr/bin/")
            else executable,
            "version": platform.python_version(),
            "minor": f"{sys.version_info[0]}.{sys.version_info[1]}",
        },
        "systemd": int(systemd.group(1)) if systemd else 0,
        "memory": parse_meminfo(_text(base / "proc/meminfo")),
        "disk": {path: disk_free(home / path) for path in disk_paths},
        "linger": (base / "var/lib/systemd/linger" / user.pw_name).exists(),
        "user_bus": (base / f"run/user/{user.pw_uid}/bus").exists(),
        "remove_ipc": parse_remove_ipc(_config_texts(base, "logind.conf")),
        "manager_limits": limits,
        "session_memlock_hard": resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
        "listening": parse_listening(_text(base / "proc/net/tcp"), _text(base / "proc/net/tcp6")),
        "gpus": parse_gpus(_run(["nvidia-smi", query, "--format=csv,noheader"], unit_path)),
        "nvcc": parse_nvcc(_run(["nvcc", "--version"], unit_path)),
        "release": os.path.realpath(current) if current.is_symlink() else "",
        "unit_files": unit_files(base, home),
        "measured": _table(home / state_root / "state/measured.json"),
        "configs": staged_configs(home / models_root.removeprefix("~/")) if models_root else {},
    }
