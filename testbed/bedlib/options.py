# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bed is: its names, addresses and folders. Pure; everything the bed makes is named here."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .system import BedError

CHECKOUT = Path(__file__).resolve().parents[2]
DISTROS = ("trixie", "noble")
USER = "spark"
UID = 1000
MANAGEMENT = "enP7s7"
MTU = 9000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Bed:
    """The options of one bed, as given or as kept in DIR/bed.json."""

    directory: Path
    prefix: str = "spark"
    nodes: int = 2
    net: str = "10.123.45"
    fabric: str = "192.168.100"
    rails: int = 1
    distro: str = "trixie"
    origin: str = ""

    def __post_init__(self) -> None:
        # An interface name has 15 characters at most and the longest suffix here is "-host".
        if not re.fullmatch(r"[a-z][a-z0-9]{0,9}", self.prefix):
            raise BedError(f"prefix {self.prefix!r}: expected 1 to 10 lower-case letters and digits, a letter first")
        if not 1 <= self.nodes <= 8:
            raise BedError(f"nodes {self.nodes}: expected 1 to 8")
        if self.rails not in (1, 2):
            raise BedError(f"rails {self.rails}: expected 1 or 2 (a port has two functions)")
        if self.distro not in DISTROS:
            raise BedError(f"distro {self.distro!r}: expected one of {', '.join(DISTROS)}")
        for name, value in (("net", self.net), ("fabric", self.fabric)):
            try:
                ipaddress.IPv4Network(f"{value}.0/24")
            except ValueError as error:
                raise BedError(f"{name} {value!r}: expected three numbers like 10.123.45 (a /24)") from error
        if self.origin and not NAME.fullmatch(self.origin):
            raise BedError(f"snapshot {self.origin!r}: expected letters, digits, dots, dashes and underscores")
        if len({self.net, *self.fabrics()}) != 1 + self.rails:
            raise BedError(f"net {self.net} and fabric {', '.join(self.fabrics())} overlap")

    def numbers(self) -> range:
        return range(1, self.nodes + 1)

    def host(self, number: int) -> str:
        return f"spark-{number:02d}"

    def number(self, name: str) -> int:
        """Node number from `1`, `01` or `spark-01`."""
        digits = name.removeprefix("spark-")
        if digits.isdigit() and int(digits) in self.numbers():
            return int(digits)
        raise BedError(f"no node {name!r} in this bed; it has {self.host(1)} to {self.host(self.nodes)}")

    def fabrics(self) -> list[str]:
        """The /24 of each rail: the second twin lies in the next one."""
        head, _, last = self.fabric.rpartition(".")
        return [f"{head}.{(int(last) + rail) % 256}" for rail in range(self.rails)]

    def address(self, number: int) -> str:
        return f"{self.net}.{10 + number}"

    def fabric_address(self, number: int, rail: int = 0) -> str:
        return f"{self.fabrics()[rail]}.{number}"

    # Names of kernel objects. All carry the prefix; interfaces inside a namespace need none.
    @property
    def switch(self) -> str:
        return f"{self.prefix}-switch"

    @property
    def host_link(self) -> str:
        return f"{self.prefix}-host"

    def namespace(self, number: int) -> str:
        return f"{self.prefix}-node{number}"

    # Folders
    def path(self, *parts: str) -> Path:
        return self.directory.joinpath(*parts)

    def node_path(self, number: int, *parts: str) -> Path:
        return self.path("nodes", self.host(number), *parts)

    def fixture_path(self, number: int, *parts: str) -> Path:
        return self.path("fixtures", self.host(number), *parts)

    def to_json(self) -> dict[str, object]:
        data = asdict(self)
        data["directory"] = str(self.directory)
        return data


def default_directory(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("BED_DIR") or CHECKOUT / ".bed").absolute()


def cache_directory(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/root")) / ".cache"
    return Path(base) / "dgx-spark-vllm"


def load(directory: Path) -> tuple[Bed, bool] | None:
    """The bed kept in a folder and whether its making came to an end; None where there is none."""
    try:
        data = json.loads((directory / "bed.json").read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BedError(f"{directory}/bed.json cannot be read: {error}") from error
    made = bool(data.pop("made", False))
    data["directory"] = directory
    return Bed(**data), made


def store(bed: Bed, made: bool) -> None:
    """Write bed.json in one step, so that a crash leaves the old one or the new one."""
    bed.directory.mkdir(parents=True, exist_ok=True)
    new = bed.path("bed.json.new")
    new.write_text(json.dumps({**bed.to_json(), "made": made}, indent=2) + "\n")
    new.replace(bed.path("bed.json"))
