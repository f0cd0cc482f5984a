# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Build a release from a folder of wheels, with uv, and check that it is what the lock says.

Nothing of the user's own settings has a say: programs run with an environment that is written here, without
configuration files, without a network, and from wheels whose hashes the lock holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import _manifest, _release
from ._engine_kept import keep_generated
from ._host_facts import UNIT_PATH
from ._progress import Meter

INSTALL_TIMEOUT_S = 7200
CHECK_TIMEOUT_S = 600
LOOK_EVERY_S = 3.0
# Room for compiled bytecode and for what an installation needs on the side.
SPARE_BYTES = 1 << 30

_LOOK = """
import importlib, json, sys
from importlib import metadata
for name in sys.argv[1:]:
    importlib.import_module(name)
import torch
nccl = ""
try:
    import ctypes, glob, os
    found = glob.glob(os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia/nccl/lib/libnccl.so.2"))
    number = ctypes.c_int()
    if found and ctypes.CDLL(found[0]).ncclGetVersion(ctypes.byref(number)) == 0:
        nccl = f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"
except OSError as exc:
    nccl = f"unreadable: {exc}"
print(json.dumps({
    "python": "%d.%d.%d" % sys.version_info[:3],
    "torch": torch.__version__,
    "torch_cuda": torch.version.cuda or "",
    "ray": metadata.version("ray"),
    "nccl": nccl,
}))
"""


class BuildError(RuntimeError):
    """A release that could not be built; the message says which step and why."""


def environment(release: Path) -> dict[str, str]:
    """What a unit that runs a release has in its environment, as far as the engine's programs are concerned."""
    return {"PATH": f"{release}/bin:{UNIT_PATH}", "HOME": str(Path.home()), "LANG": "C.UTF-8"}


def _die_with_parent() -> None:
    """Let a child end when this process is killed (prctl PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def run(argv: Sequence[str], env: Mapping[str, str], timeout: int, lock: int | None = None) -> str:
    """Run a program to its end and return what it printed; BuildError with the end of its output where it fails."""
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            cwd="/",
            pass_fds=() if lock is None else (lock,),
            preexec_fn=_die_with_parent,
        )
    except subprocess.TimeoutExpired as exc:
        raise BuildError(f"{' '.join(argv[:3])}: not done after {timeout} s") from exc
    if done.returncode:
        tail = "\n".join(done.stdout.strip().splitlines()[-25:])
        raise BuildError(f"{' '.join(argv[:3])}: exit status {done.returncode}\n{tail}")
    return done.stdout


def unpacked_size(wheelhouse: Path, filenames: Sequence[str]) -> int:
    """Bytes that wheels take when they are unpacked."""
    total = 0
    for filename in filenames:
        with zipfile.ZipFile(wheelhouse / filename) as archive:
            total += sum(item.file_size for item in archive.infolist())
    return total


def install_uv(root: Path, wheel: Path, version: str) -> Path:
    """The pinned uv, taken out of its wheel."""
    program = root / "uv" / version / "uv"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    temporary = program.with_name(f".uv.{os.getpid()}")
    with zipfile.ZipFile(wheel) as archive, temporary.open("wb") as target:
        (name,) = [item for item in archive.namelist() if item.endswith(".data/scripts/uv")]
        with archive.open(name) as source:
            shutil.copyfileobj(source, target)
    temporary.chmod(0o755)
    temporary.replace(program)
    return program


def uv_environment(cache: Path) -> dict[str, str]:
    """uv's whole environment."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "UV_CACHE_DIR": str(cache),
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
    }


def _size(folder: Path) -> int:
    """Bytes in all files below a folder."""
    return sum(item.size for item in _manifest.scan(folder).values())


@contextlib.contextmanager
def _unpacking(folder: Path, total: int, meter: Meter) -> Iterator[None]:
    """Tell how many bytes are below a folder while something fills it, and that what follows is compiling."""
    done = threading.Event()

    def watch() -> None:
        have = 0
        while have < total and not done.wait(LOOK_EVERY_S):
            # What moves while it is counted is counted the next time.
            with contextlib.suppress(OSError):
                have = _size(folder)
                meter.at(have)
        if not done.is_set():
            meter.phase("compiling", 0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _cache(root: Path, name: str) -> Path:
    """uv's cache for one build."""
    return _release.releases(root) / f".{name}.cache"


def _install(root: Path, name: str, wheelhouse: Path, python: str, lock: int, timeout_s: int) -> None:
    """Unpack the wheels into a fresh environment."""
    release = _release.releases(root) / name
    contents = _release.read_json(wheelhouse / "wheels.json")
    uv_wheel = contents["uv"]
    uv = str(install_uv(root, wheelhouse / uv_wheel[2], uv_wheel[1]))
    # A cache of its own that goes away afterwards: its files are then only the environment's, so links are safe
    # (nobody can edit one file and poison another), and the bytes are written once instead of twice.
    cache = _cache(root, name)
    shutil.rmtree(cache, ignore_errors=True)
    env = uv_environment(cache)
    try:
        run([uv, "venv", "--python", python, "--relocatable", "--no-project", str(release)], env, CHECK_TIMEOUT_S, lock)
        install = [
            *(uv, "pip", "install", "--python", f"{release}/bin/python"),
            *("--no-index", "--find-links", str(wheelhouse), "--only-binary", ":all:"),
            *("--require-hashes", "--no-deps", "--link-mode", "hardlink", "--compile-bytecode"),
            *("-r", str(wheelhouse / "requirements.txt")),
        ]
        run(install, env, timeout_s, lock)
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def look(
    release: Path, imports: Sequence[str], programs: Sequence[str], card_environment: Mapping[str, str]
) -> dict[str, str]:
    """Run what is installed, in the environment of a unit: versions as the programs themselves say them.

    BuildError names the programs that the engine calls while it runs and that a unit would not find.
    """
    env = {**card_environment, **environment(release)}
    absent = [name for name in programs if shutil.which(name, path=env["PATH"]) is None]
    if absent:
        raise BuildError(
            f"{', '.join(absent)} not found in the units' PATH {env['PATH']}; a login shell's does not count"
        )
    with ThreadPoolExecutor(2) as pool:
        version = pool.submit(run, [f"{release}/bin/vllm", "--version"], env, CHECK_TIMEOUT_S)
        rest = pool.submit(run, [f"{release}/bin/python", "-c", _LOOK, *imports], env, CHECK_TIMEOUT_S)
        words = version.result().split()
        found: dict[str, str] = json.loads(rest.result().strip().splitlines()[-1])
    return {**found, "vllm": words[-1] if words else ""}


def judge(found: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """What is not as the variant says, one line a thing; an empty expectation is none.

    Of a local version (what follows the plus) a program may say nothing, but nothing else.
    """
    lines = []
    for key, want in expected.items():
        have, (base, _plus, local) = found.get(key, ""), want.partition("+")
        if want and not re.fullmatch(rf"{re.escape(base)}(\+{re.escape(local) if local else '.+'})?", have):
            lines.append(f"{key} is {have or 'a build without CUDA'}, expected {want}")
    return lines


def build(
    root: Path,
    name: str,
    wheelhouse: Path,
    python: str,
    expected: Mapping[str, str],
    imports: Sequence[str],
    programs: Sequence[str],
    card_environment: Mapping[str, str],
    wait_s: int,
    timeout_s: int = INSTALL_TIMEOUT_S,
    meter: Meter | None = None,
) -> dict[str, Any]:
    """Make a release complete, whatever was there of it; returns what is in it and what was done.

    wait_s: how long another build of the same release is waited for; timeout_s: how long the installation may take.
    Whoever is killed in the middle leaves a folder without a manifest; the next one starts it afresh.
    """
    release, meter = _release.releases(root) / name, meter or Meter()
    with _release.exclusive(root, name, wait_s) as lock:
        if (release / _manifest.NAME).exists():
            return {**_release.read_json(release / "release.json"), "built": False}
        started = time.monotonic()
        shutil.rmtree(release, ignore_errors=True)
        filenames = [wheel[2] for wheel in _release.read_json(wheelhouse / "wheels.json")["wheels"]]
        need = unpacked_size(wheelhouse, filenames) + SPARE_BYTES
        stat = os.statvfs(root)
        free = stat.f_bavail * stat.f_frsize
        if free < need:
            raise BuildError(
                f"{root} has {free / 1e9:.1f} GB free, the environment needs {need / 1e9:.1f} GB; make room"
            )
        meter.phase("unpacking", need - SPARE_BYTES)
        with _unpacking(_cache(root, name), need - SPARE_BYTES, meter):
            _install(root, name, wheelhouse, python, lock, timeout_s)
        installed = time.monotonic()
        meter.phase("running it", 0)
        found = look(release, imports, programs, card_environment)
        faults = judge(found, expected)
        if faults:
            raise BuildError(f"the environment is not what was asked for: {'; '.join(faults)}")
        looked = time.monotonic()
        meter.phase("hashing", _size(release))
        manifest = _manifest.make(release, count=meter.add)
        wrong = _manifest.broken_records(release, manifest)
        if wrong:
            raise BuildError(f"{len(wrong)} files are not as their wheels say, the first: {', '.join(wrong[:5])}")
        keep_generated(release, manifest)
        summary = {
            "id": name,
            "versions": found,
            "digest": manifest["digest"],
            "seconds": {
                "install": round(installed - started, 1),
                "check": round(looked - installed, 1),
                "manifest": round(time.monotonic() - looked, 1),
            },
        }
        _release.write_atomic(release / "release.json", json.dumps(summary, indent=1) + "\n")
        _release.write_atomic(release / _manifest.NAME, _manifest.dump(manifest))
        return {**summary, "built": True}
