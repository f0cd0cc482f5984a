#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process of a unit receives is the list, byte for byte: 200 random lists through the systemd of a node.

usage: unit_argv.py lists [SEED [COUNT]]   print random lists and variables as JSON      (anywhere)
       unit_argv.py units DIRECTORY        write unit files for the lists on standard input (on the controller)
       unit_argv.py run DIRECTORY          start the units there and compare             (on the node, as its user)

The unit files are made by the collection's own filters; nothing of the lists is escaped here.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

PREFIX = "argv-proof"
# Prints what it received as JSON to the file named by the unit's own name.
RECEIVER = "import json, os, sys; json.dump([sys.argv[2:], os.environ.get('PROOF')], open(sys.argv[1], 'w'))"
# Every tenth unit starts a program whose own path is odd.
ODD = "odd $x %n ${y};é dir/receiver"
PIECES = [
    " ", "\t", "\n", "'", '"', "%", "%%", "%n", "%h", "$", "$$", "$HOME", "${HOME}", "\\", "\\\\", "\\n", "\\x41",
    ";", "\\;", ";;", "&", "|", "#", "=", "@", "-", "+", "!", ":", "~", "*", "?", "[", "{", "}", "é", "€", "日本",
    "🦊", "a", "B", "7", "/", "--flag", "\u00a0", "\x01", '{"method":"dflash","model":"/m/a b"}',
]  # fmt: skip


def lists(seed: int = 20260701, count: int = 200) -> list[dict[str, object]]:
    """Lists with everything in them that systemd reads something into, the empty text among it."""
    chance = random.Random(seed)

    def word() -> str:
        return "".join(chance.choices(PIECES, k=chance.randint(0, 6)))

    # A variable may not hold control characters other than tab and newline.
    return [
        {"argv": [word() for _ in range(chance.randint(1, 12))], "PROOF": word().replace("\x01", "")}
        for _ in range(count)
    ]


def units(folder: Path) -> None:
    """One unit a list, made by the filters of the collection."""
    root = Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(root / "collections"))
    from ansible_collections.dgx_spark.vllm.plugins.filter.systemd_argv import systemd_argv
    from ansible_collections.dgx_spark.vllm.plugins.filter.systemd_env import systemd_env

    folder.mkdir(parents=True, exist_ok=True)
    for at, proof in enumerate(json.load(sys.stdin)):
        program = ["/PLACE/" + ODD] if at % 10 == 0 else ["/usr/bin/python3", "-c", RECEIVER]
        argv = systemd_argv([*program, f"/PLACE/{at}.json", *proof["argv"]], program=True)
        text = f"[Service]\nType=oneshot\n{systemd_env({'PROOF': proof['PROOF']})}\nExecStart={argv}\n"
        (folder / f"{PREFIX}-{at}.service").write_text(text, encoding="utf-8")
        (folder / f"{at}.expected.json").write_text(json.dumps([proof["argv"], proof["PROOF"]]), encoding="utf-8")


def run(folder: Path) -> int:
    """Start every unit of the folder in the user's manager and compare what its process received."""
    target = Path(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")) / "systemd" / "user"
    target.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(target.parent.parent)}
    names = sorted(path.name for path in folder.glob(f"{PREFIX}-*.service"))
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        odd = Path(place) / ODD
        odd.parent.mkdir()
        odd.write_text(f"#!/usr/bin/python3\n{RECEIVER}\n", encoding="utf-8")
        odd.chmod(0o700)
        try:
            for name in names:
                text = (folder / name).read_text(encoding="utf-8").replace("/PLACE/", f"{place}/")
                (target / name).write_text(text, encoding="utf-8")
            subprocess.run(["systemctl", "--user", "daemon-reload"], check=True, env=environment, timeout=60)
            subprocess.run(["systemctl", "--user", "start", *names], check=False, env=environment, timeout=300)
            for name in names:
                at = name.removeprefix(f"{PREFIX}-").removesuffix(".service")
                received = Path(place) / f"{at}.json"
                expected = json.loads((folder / f"{at}.expected.json").read_text(encoding="utf-8"))
                found = json.loads(received.read_text(encoding="utf-8")) if received.exists() else None
                if found != expected:
                    wrong += 1
                    print(f"{name}: expected {expected!r}, received {found!r}")
        finally:
            for name in names:
                (target / name).unlink(missing_ok=True)
            subprocess.run(["systemctl", "--user", "reset-failed", f"{PREFIX}-*"], check=False, env=environment,
                           capture_output=True, timeout=60)  # fmt: skip
            subprocess.run(["systemctl", "--user", "daemon-reload"], check=False, env=environment, timeout=60)
    print(json.dumps({"lists": len(names), "wrong": wrong}))
    return 0 if names and not wrong else 1


def main(words: list[str]) -> int:
    if words[:1] == ["lists"]:
        print(json.dumps(lists(*map(int, words[1:3]))))
        return 0
    if words[:1] == ["units"] and len(words) == 2:
        units(Path(words[1]))
        return 0
    if words[:1] == ["run"] and len(words) == 2:
        return run(Path(words[1]))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
