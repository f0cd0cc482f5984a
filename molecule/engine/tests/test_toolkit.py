# SPDX-License-Identifier: GPL-3.0-or-later
"""What the distribution and NVIDIA's repository hold is installed by apt where it lacks, and the driver never."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.bed import nodes
from tests.engine import tiny
from tests.engine.releases import NODES, Bed

testinfra_hosts = [f"ansible://{nodes.HEAD}"]
ROW = {
    **tiny.ROW,
    "libraries": {"libneeded.so.1": "libneeded1"},
    "driver_min": "580",
    "toolkit_min": "12.8",
    "toolkit_package": "cuda-toolkit-12-9",
}
WISH: dict[str, Any] = {
    "engine_variants_extra": {"tiny": ROW},
    "engine_cuda_install": True,
    "engine_cuda_keyring": "/srv/debs/cuda-keyring_1.0_all.deb",
}
INSTALLED = (
    "dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' libneeded1 cuda-toolkit-12-9 nvidia-driver 2>/dev/null"
    " | sed -n 's/^ii *//p'"
)


@pytest.fixture(scope="module")
def repositories(bed: Bed) -> Iterator[None]:
    """On both nodes; only the worker lacks the toolkit. All is as it was afterwards."""
    for host in bed.hosts.values():
        nodes.put(host, nodes.ROOT / "tests/engine/debs.py", "/tmp/debs.py")
        keep = "sudo cp -p /usr/local/cuda/bin/nvcc /srv/nvcc"
        nodes.out(host, f"{keep} && sudo mkdir -p /srv/debs && sudo python3 /tmp/debs.py /srv/debs")
    nodes.out(bed.hosts[nodes.HEAD], "sudo cp -p /srv/nvcc /usr/local/cuda/bin/nvcc")
    yield
    for host in bed.hosts.values():
        nodes.out(host, "sudo dpkg --purge libneeded1 cuda-toolkit-12-9 cuda-keyring")
        nodes.out(host, "sudo mkdir -p /usr/local/cuda/bin && sudo mv /srv/nvcc /usr/local/cuda/bin/nvcc")
        nodes.out(host, "sudo mv /etc/apt/sources.kept /etc/apt/sources.list && sudo rm -r /srv/debs")


@pytest.mark.usefixtures("repositories")
def test_a_dry_run_says_so_and_installs_nothing(bed: Bed) -> None:
    done = bed.run(500, "--check", "--diff", **WISH)
    assert not done.failed, done.said()
    assert f"{nodes.WORKER}: install the CUDA toolkit cuda-toolkit-12-9" in done.output
    assert f"{nodes.HEAD}: install the CUDA toolkit" not in done.output
    for name in NODES:
        assert f"{name}: install libneeded1 from the distribution" in done.output
    assert set(bed.on_all(INSTALLED).values()) == {""}


@pytest.mark.usefixtures("repositories")
def test_what_lacks_is_installed_and_no_driver(bed: Bed) -> None:
    done = bed.run(500, **WISH)
    assert not done.failed, done.said()
    assert bed.on_all(INSTALLED) == {nodes.HEAD: "libneeded1", nodes.WORKER: "cuda-toolkit-12-9\nlibneeded1"}
    assert bed.current() == {bed.name(500)}
    again = bed.run(500, **WISH)
    assert again.changed == {name: [] for name in NODES}, again.said()
