# SPDX-License-Identifier: GPL-3.0-or-later
"""What else the role does with models, on real nodes: the dry run, another host as the source, list to prune."""

from __future__ import annotations

import re
import time

import pytest

from testbed.models import make_shards
from tests.mirror.mirror_bed import HOME, NAME, Nodes, needs_bed

pytest_plugins = ("tests.mirror.fixtures",)
pytestmark = needs_bed
SMALL = "Small"
# So slow that a log gets its lines.
SLOW = 40_000_000


def test_a_dry_run_says_the_bytes_and_a_run_moves_them_on_all_rails(nodes: Nodes, whole: dict[str, str]) -> None:
    head, host = nodes.hosts[0], nodes.hosts[-1]
    total = int(nodes.run(head, f"du -sb --apparent-size models/{NAME}/* | awk '{{s+=$1}} END {{print s}}'"))
    nodes.run(host, "rm -rf models")
    before = nodes.counted(host)
    # C73, before the first byte.
    process = nodes.play(models_disk_reserve_bytes=1 << 60)
    said, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert f"[{host}] disk of {HOME}/models" in said, said[-3000:]
    said = nodes.play_through("--check")
    assert re.search(rf"{host}: {NAME}: [\d.]+ [MG]B \({total} bytes\) from {head} over the fabric", said), said[-3000:]
    assert nodes.run(host, "ls models 2>/dev/null", check=False) == ""
    assert nodes.counted(host) - before < 1_000_000
    rails = nodes.by_rail(host)
    began = time.monotonic()
    said = nodes.play_through(models_mirror_bandwidth=SLOW)
    took = time.monotonic() - began
    assert nodes.sums(host) == whole
    # First after three seconds, then one every ten, each with bytes, share, rate and the time left.
    line = rf"  {host}: .*moving  [\d.]+ [kMG]?B of [\d.]+ [MG]B \(\d+ %\)  [\d.]+ [kMG]B/s  \d+:\d\d left"
    least = max(nodes.size / SLOW / 10 - 2, 1)
    assert least <= len(re.findall(line, said)) < took / 10 + 1, said[-3000:]
    shares = [after - rails[name] for name, after in nodes.by_rail(host).items()]
    assert len(shares) == nodes.bed.rails
    assert min(shares) > 0.25 * total, shares


@pytest.fixture
def another_host(nodes: Nodes) -> dict[str, str]:
    """A small model on the last node, which lets the head in over the fabric; the source that names it."""
    head, host = nodes.hosts[0], nodes.hosts[-1]
    folder = nodes.source() / SMALL
    if not folder.is_dir():
        make_shards.make(folder, 3_000_000, 3)
    nodes.copy(host, folder, "other/")
    address, key = nodes.addresses()[host][0], ".ssh/from_another_host"
    nodes.run(head, f"mkdir -p .ssh; test -f {key} || ssh-keygen -q -t ed25519 -N '' -f {key}")
    nodes.run(head, f"ssh-keyscan {address} >> .ssh/known_hosts 2>/dev/null")
    nodes.run(host, f"echo '{nodes.run(head, f'cat {key}.pub')}' >> .ssh/authorized_keys")
    return {"type": "host", "address": address, "user": "spark", "path": f"{HOME}/other", "key": f"{HOME}/{key}"}


def test_a_second_model_comes_from_another_host_and_goes_again(nodes: Nodes, another_host: dict[str, str]) -> None:
    """Mirrored with a cipher, as where the fabric is not ours alone."""
    nodes.play_through(model=SMALL, models_source=another_host, models_mirror_transport="ssh")
    head, host = nodes.hosts[0], nodes.hosts[-1]
    true = nodes.sums(host, f"../other/{SMALL}")
    assert nodes.sums(head, SMALL) == nodes.sums(host, SMALL) == true
    nodes.play_through(model=SMALL, models_source=another_host, models_action="verify", models_deep=True)
    # No card of the inventory names either; the deployment's own is kept.
    shown = nodes.play_through(models_action="prune")
    assert re.search(rf"{SMALL} +3\.\d\d MB +proved +proved +- +-", shown), shown
    assert re.search(rf"{NAME} +\S+ \wB +proved +proved", shown), shown
    for name in nodes.hosts:
        assert re.search(rf"{name}: {SMALL} \(\S+ MB\); to remove it: -e models_prune_confirm=true", shown), shown
        assert nodes.sums(name, SMALL) == true
    nodes.play_through(models_action="prune", models_prune_confirm=True)
    for name in nodes.hosts:
        assert nodes.run(name, "ls models") == NAME
        assert nodes.run(name, "ls models/.dgx-spark-vllm") == NAME


def test_the_page_cache_of_the_models_is_dropped_on_every_node(nodes: Nodes) -> None:
    for host in nodes.hosts:
        nodes.run(host, f"cat models/{NAME}/*.safetensors > /dev/null")
        assert nodes.cached(host) > 0.9 * nodes.size
    nodes.play_through(models_action="dropcache")
    assert [nodes.cached(host) for host in nodes.hosts] == [0] * len(nodes.hosts)
