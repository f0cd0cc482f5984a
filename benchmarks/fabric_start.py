#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolution of the fabric at a start: `fabric-env` against the shell loop that owners run today, side by side.

Both read the same tree: four ports of 255 slots, two of them with an address. With a host's name as the argument the
same two run there over SSH, as a person or a play would ask (the node needs the programs of the role `programs`).
Exits with 1 where a start takes more CPU time than its bound; the wall clock also counts what else the machine does.
"""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce import read, resolve  # noqa: E402

from tests.unit.plugins.module_utils import fabric_trees as trees  # noqa: E402

RUNS = 10
MOST_CPU_MS = 60
PORTS = """
rocep1s0f1 enp1s0f1np1 ACTIVE
 0 v1 fe80:1, 1 v2 fe80:1, 2 v1 192.168.100.1, 3 v2 192.168.100.1
roceP2p1s0f1 enP2p1s0f1np1 ACTIVE
 0 v1 fe80:2, 1 v2 fe80:2, 2 v1 192.168.101.1, 3 v2 192.168.101.1
rocep1s0f0 enp1s0f0np0 DOWN
roceP2p1s0f0 enP2p1s0f0np0 DOWN
"""
# What stands in guides and forum posts, as careful as they come: every row, v2 only, by address.
LOOP = """
for dev in {root}/sys/class/infiniband/*; do for port in "$dev"/ports/*; do for gid in "$port"/gids/*; do
  i=$(basename "$gid"); value=$(cat "$gid" 2>/dev/null); type=$(cat "$port/gid_attrs/types/$i" 2>/dev/null)
  ndev=$(cat "$port/gid_attrs/ndevs/$i" 2>/dev/null)
  case "$type $value" in
    "RoCE v2 0000:0000:0000:0000:0000:ffff:c0a8:6401") echo "$(basename "$dev") $i $ndev" ;;
  esac
done; done; done
"""


def installed(home: Path) -> Path:
    """The library and the launcher as a node has them, run by this Python."""
    library = home / "lib/dgx_spark_vllm"
    library.mkdir(parents=True)
    for path in (ROOT / "plugins/module_utils").glob("_*.py"):
        (library / path.name).write_bytes(path.read_bytes())
    (library / "__init__.py").touch()
    program = home / "bin/fabric-env"
    program.parent.mkdir()
    text = (ROOT / "roles/programs/files/launcher.py.in").read_text(encoding="utf-8")
    text = text.replace("@MODULE@", "_fabric_env").replace("/usr/bin/python3", sys.executable, 1)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return program


def timed(argv: Sequence[str], expect: str) -> tuple[float, float]:
    """Milliseconds of one run by the clock and of CPU time; it must have found what it should."""
    start, before = time.perf_counter(), os.times()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    took, after = time.perf_counter() - start, os.times()
    if expect not in done.stdout:
        sys.exit(f"{argv[0]}: expected {expect!r}, found {done.stdout!r} {done.stderr!r}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return took * 1000, cpu * 1000


def row(name: str, once: Callable[[], tuple[float, float]], runs: int = RUNS) -> float:
    """Print a line; returns the mean CPU time."""
    once()  # the first run fills caches
    times = [once() for _ in range(runs)]
    clock, cpu = statistics.median(one[0] for one in times), statistics.mean(one[1] for one in times)
    print(f"{name:44}{clock:12.2f}{min(one[0] for one in times):10.2f}{cpu:10.2f}", flush=True)
    return cpu


def pure(function: Callable[[], object]) -> Callable[[], tuple[float, float]]:
    def once() -> tuple[float, float]:
        start, before = time.perf_counter(), time.process_time()
        function()
        return (time.perf_counter() - start) * 1000, (time.process_time() - before) * 1000

    return once


def here(folder: Path) -> int:
    """Both on this machine."""
    root = folder / "root"
    trees.tree(root, PORTS, slots=255)
    program = installed(folder)
    config, state = folder / "fabric.json", folder / "state/fabric.json"
    config.write_text(json.dumps({"root": str(root), "wait_s": 0}), encoding="utf-8")
    printed = "import os; print(os.environ['NCCL_IB_GID_INDEX'])"
    command = [sys.executable, "-ISc", printed]
    row("an empty Python (-I -S)", lambda: timed([sys.executable, "-ISc", "print(3)"], "3"))
    run = [str(program), "--config", str(config), "--state", str(state), "run", "--"]
    cpu = row("fabric-env run -- true", lambda: timed([*run, "/bin/true"], ""))
    row("fabric-env run, and the command sees index 3", lambda: timed([*run, *command], "3\n"))
    row("shell loop: cat over all rows", lambda: timed(["sh", "-c", LOOP.format(root=root)], "rocep1s0f1 3 "), runs=3)
    facts = read(str(root))
    row("  of which reading 1,020 slots", pure(lambda: read(str(root))))
    row("  of which resolving", pure(lambda: resolve(facts)))
    print(f"a start's CPU time: {cpu:.0f} ms (bound {MOST_CPU_MS} ms)")
    return 0 if cpu < MOST_CPU_MS else 1


def there(host: str) -> None:
    """Both on a node, over SSH; options of ssh come from SSH_ARGS."""
    ssh = ["ssh", *shlex.split(os.environ.get("SSH_ARGS", "")), host]
    program = ".local/share/dgx-spark-vllm/bin/fabric-env"
    row(f"{host}: true", lambda: timed([*ssh, "true"], ""))
    row(f"{host}: fabric-env run -- true", lambda: timed([*ssh, f"{program} run -- true"], ""))
    row(f"{host}: shell loop", lambda: timed([*ssh, LOOP.format(root="")], ""))


def main() -> int:
    print(f"{'milliseconds, ' + str(RUNS) + ' runs':44}{'median':>12}{'least':>10}{'mean CPU':>10}")
    if len(sys.argv) > 1:
        there(sys.argv[1])
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return here(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
