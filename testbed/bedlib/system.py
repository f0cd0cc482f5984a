# SPDX-License-Identifier: GPL-3.0-or-later
"""Running commands, waiting with an end, and telling what this machine lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# Command → Debian/Ubuntu package it comes from. What the bed itself calls, and what the playbooks need on a controller.
TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "bridge": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "journalctl": "systemd",
    "rsync": "rsync",
}
# mmdebstrap checks Debian's archive with these keys; Ubuntu hosts do not have them by themselves.
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
KEYRING_PACKAGE = "debian-archive-keyring"


class BedError(Exception):
    """Something the user has to read; printed without a traceback."""


def say(text: str) -> None:
    """A line of progress. On standard error, so that standard output stays clean for data."""
    print(f"bed: {text}", file=sys.stderr, flush=True)


def run(argv: Sequence[str], *, stdin: str | None = None, timeout: float = 60, check: bool = True) -> str:
    """Run a command to its end and return what it printed; an error shows its own words."""
    try:
        done = subprocess.run(
            list(argv), input=stdin, capture_output=True, text=True, timeout=timeout, check=False, errors="replace"
        )
    except FileNotFoundError as error:
        raise BedError(f"{argv[0]}: not found on this machine; run `bed deps`") from error
    except subprocess.TimeoutExpired as error:
        raise BedError(f"{' '.join(argv)}: no end after {timeout:.0f} s") from error
    if check and done.returncode != 0:
        words = (done.stderr or done.stdout).strip()
        raise BedError(f"{' '.join(argv)}: exit {done.returncode}: {words}")
    return done.stdout


def wait_for(condition: Callable[[], bool], seconds: float, what: str, pause: float = 0.05) -> None:
    """Poll until the condition holds; after `seconds` say what did not happen."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise BedError(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)


def missing_packages(distro: str) -> list[str]:
    """Packages this machine needs before it can hold a bed of that distribution."""
    wanted = {package for tool, package in TOOLS.items() if shutil.which(tool) is None}
    if distro == "trixie" and not KEYRING.exists():
        wanted.add(KEYRING_PACKAGE)
    if distro == "noble" and shutil.which("dpkg-deb") is None:
        wanted.add("dpkg")
    return sorted(wanted)


def require_tools(distro: str) -> None:
    """Stop with the apt line when a package is missing."""
    if sys.platform != "linux":
        raise BedError(f"the bed needs Linux (namespaces, systemd-nspawn); this is {sys.platform}")
    packages = missing_packages(distro)
    if packages:
        line = "apt-get install --no-install-recommends " + " ".join(packages)
        raise BedError(f"missing on this machine: {', '.join(packages)}\n  run `bed deps`, or: {line}")


def install_packages(distro: str) -> None:
    """`bed deps`: install what is missing, saying which."""
    packages = missing_packages(distro)
    if not packages:
        say("every system package the bed needs is here")
        return
    if shutil.which("apt-get") is None:
        raise BedError(f"missing: {', '.join(packages)}; this machine has no apt-get to install them with")
    say(f"installing {', '.join(packages)}")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    install = ["apt-get", "-q", "-y", "install", "--no-install-recommends", *packages]
    try:
        run(install, timeout=1200)
    except BedError:
        # No package lists yet, or old ones. A third-party archive that is down must not stand in the way.
        run(["apt-get", "-q", "update"], timeout=600, check=False)
        run(install, timeout=1200)


def require_root(verb: str) -> None:
    """Namespaces, mounts and cgroups are root's: become root by sudo, keeping the bed's variables and the cache."""
    if os.geteuid() == 0:
        return
    if shutil.which("sudo") is None:
        raise BedError(f"`bed {verb}` makes namespaces and mounts and needs root; there is no sudo here")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    keep = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("BED_")]
    argv = ["sudo", "env", *keep, f"XDG_CACHE_HOME={cache}", f"PATH={os.environ.get('PATH', '')}:/usr/sbin:/sbin"]
    os.execvp("sudo", [*argv, sys.executable, *sys.argv])


def give_to_caller(*paths: Path) -> None:
    """Under sudo, hand files over to the person who called, so that ansible need not run as root."""
    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if os.geteuid() != 0 or uid is None or gid is None:
        return
    for path in paths:
        run(["chown", "-hR", f"{uid}:{gid}", str(path)])
