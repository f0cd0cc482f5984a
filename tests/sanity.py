#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run `ansible-test sanity` on a real copy of the checkout.

ansible-test wants the collection at …/ansible_collections/dgx_spark/vllm and does not follow a link there. It also
downloads pip's bootstrap script from a host of its own; Python's ensurepip gives the same pip without that host, so a
stand-in that calls it is put where ansible-test keeps the download.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAND_IN = '''\
"""Stand-in for pip's bootstrap script: the pip that Python ships, then what was asked of the script."""
import subprocess, sys
subprocess.run([sys.executable, "-m", "ensurepip", "--upgrade"], check=True)
wanted = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
sys.exit(subprocess.run([sys.executable, "-m", "pip", "install", *wanted]).returncode)
'''
# The parts of the tree that Ansible loads; what else is in the checkout is linted by other means.
PARTS = ("galaxy.yml", "meta", "plugins", "README.md", "LICENSE", "changelogs", "tests/sanity")


def copy_tree(copy: Path) -> None:
    """Copy the tracked and new files of the parts that ansible-test looks at."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PARTS],
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.is_file():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def provide_bootstrap() -> None:
    """Put the stand-in where ansible-test looks for its download, under each name that this version asks for."""
    import ansible_test

    source = Path(str(next(iter(ansible_test.__path__)))) / "_util/target/setup/bootstrap.sh"
    names = set(re.findall(r"get[_-]pip[\w.-]*\.py", source.read_text() if source.exists() else ""))
    cache = Path("~/.ansible/test/cache").expanduser()
    cache.mkdir(parents=True, exist_ok=True)
    for name in names | {"get_pip_25_2.py"}:
        (cache / name).write_text(STAND_IN)


def main() -> int:
    """Copy, provide, run; extra arguments go to ansible-test."""
    provide_bootstrap()
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    bin_dir = Path(sys.executable).parent
    # Outside the checkout: below it git would call every file of the copy ignored, and ansible-test would skip it.
    with tempfile.TemporaryDirectory(prefix="dgx-spark-vllm-sanity-") as folder:
        copy = Path(folder) / "ansible_collections/dgx_spark/vllm"
        copy_tree(copy)
        env = {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}", "ANSIBLE_COLLECTIONS_PATH": folder}
        command = [str(bin_dir / "ansible-test"), "sanity", "--local", "--python", version, "--color", "no"]
        return subprocess.run([*command, *sys.argv[1:]], cwd=copy, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
