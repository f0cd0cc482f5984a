# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware tables against what is known of real pairs (docs/testbed.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.bedlib import fixtures, tree
from testbed.bedlib.options import Bed

BED = Bed(Path("/b"))
TABLE = "class/infiniband/rocep1s0f1/ports/1"


def rows(number: int, bed: Bed = BED, device: str = "rocep1s0f1") -> list[tuple[int, str, str]]:
    """Slots that hold something: (slot, type, gid)."""
    table = fixtures.files(bed, number)
    found = []
    for slot in range(fixtures.SLOTS):
        kind = table.get(f"class/infiniband/{device}/ports/1/gid_attrs/types/{slot}")
        gid = table[f"class/infiniband/{device}/ports/1/gids/{slot}"].strip()
        assert (kind is None) == (gid == fixtures.ZERO), "an empty slot has a zero GID and no type"
        if kind is not None:
            found.append((slot, kind.strip(), gid))
    return found


def test_first_node_has_index_3() -> None:
    address = "0000:0000:0000:0000:0000:ffff:c0a8:6401"
    link_local = "fe80:0000:0000:0000:4cbb:47ff:fe00:0110"
    assert rows(1) == [
        (0, "IB/RoCE v1", link_local),
        (1, "RoCE v2", link_local),
        (2, "IB/RoCE v1", address),
        (3, "RoCE v2", address),
    ]


def test_second_node_has_index_5_behind_a_second_link_local_pair() -> None:
    found = rows(2)
    assert [(slot, kind) for slot, kind, _ in found] == [(n, ("IB/RoCE v1", "RoCE v2")[n % 2]) for n in range(6)]
    assert found[0][2] == found[1][2] != found[2][2] == found[3][2]
    assert all(gid.startswith("fe80:") for _, _, gid in found[:4])
    assert {gid for _, _, gid in found[4:]} == {"0000:0000:0000:0000:0000:ffff:c0a8:6402"}


def test_link_local_gid_is_what_the_kernel_makes_of_the_mac() -> None:
    # RFC 4291, appendix A: bit 1 of the first octet flips and ff:fe goes between the halves.
    assert fixtures.link_local("34:56:78:9a:bc:de") == "fe80:0000:0000:0000:3656:78ff:fe9a:bcde"
    assert fixtures.mapped("192.168.100.1").endswith(":ffff:c0a8:6401")


@pytest.mark.parametrize("number", range(1, 9))
def test_every_node_has_one_active_device_and_three_that_are_down(number: int) -> None:
    table = fixtures.files(Bed(Path("/b"), nodes=8), number)
    states = {p.split("/")[2]: text.strip() for p, text in table.items() if p.endswith("/ports/1/state")}
    assert states == {
        "rocep1s0f1": "4: ACTIVE",
        "roceP2p1s0f1": "1: DOWN",
        "rocep1s0f0": "1: DOWN",
        "roceP2p1s0f0": "1: DOWN",
    }


def test_two_rails_make_the_twin_active_in_its_own_subnet() -> None:
    bed = Bed(Path("/b"), rails=2)
    assert rows(1, bed, "roceP2p1s0f1")[-1][2].endswith("ffff:c0a8:6501")
    assert fixtures.files(bed, 1)["net/enP2p1s0f1np1/speed"] == "200000\n"
    assert rows(1, BED, "roceP2p1s0f1") == []


def test_device_names_its_network_device_and_its_slot() -> None:
    table = fixtures.files(BED, 1)
    assert table[f"{TABLE}/gid_attrs/ndevs/3"] == "enp1s0f1np1\n"
    assert f"{TABLE}/../../device/net/enp1s0f1np1/ifindex".replace("/ports/1/../..", "") in table
    assert table["class/infiniband/rocep1s0f1/device/current_link_width"] == "4\n"
    assert all(text.endswith("\n") and not text.endswith("\n\n") for text in table.values())


def smi(tmp_path: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """The program of the tree, on a copy of the data."""
    data = tmp_path / "gpu"
    if not data.exists():
        for path, text in fixtures.gpu_files().items():
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(text + "\n")
    program = tmp_path / "nvidia-smi"
    program.write_text((tree.FILES / "usr/bin/nvidia-smi").read_text().replace("/opt/fixture/gpu", str(data)))
    return subprocess.run([sys.executable, str(program), *argv], capture_output=True, text=True, check=False)


def test_nvidia_smi_answers_a_query(tmp_path: Path) -> None:
    query = "--query-gpu=name,driver_version,compute_cap,memory.total"
    assert smi(tmp_path, query, "--format=csv,noheader").stdout == "NVIDIA GB10, 580.95.05, 12.1, [N/A]\n"
    assert smi(tmp_path, "--query-gpu=power.draw", "--format=csv,noheader,nounits").stdout == "4.10\n"
    assert smi(tmp_path, "--query-gpu=name", "--format=csv").stdout == "name\nNVIDIA GB10\n"


def test_nvidia_smi_screen_list_and_refusals(tmp_path: Path) -> None:
    assert "CUDA Version: 13.0" in smi(tmp_path).stdout
    assert smi(tmp_path, "-L").stdout.startswith("GPU 0: NVIDIA GB10 (UUID: GPU-")
    unknown = smi(tmp_path, "--query-gpu=name,color", "--format=csv")
    assert (unknown.returncode, unknown.stdout) == (2, 'Field "color" is not a valid field to query.\n\n')
    assert smi(tmp_path, "--reset").returncode == 1


def test_nvidia_smi_fails_as_its_data_says(tmp_path: Path) -> None:
    smi(tmp_path)
    (tmp_path / "gpu/error").write_text("NVIDIA-SMI has failed because it couldn't communicate with the driver.\n")
    (tmp_path / "gpu/exit").write_text("9\n")
    failed = smi(tmp_path, "--query-gpu=name", "--format=csv,noheader")
    assert failed.returncode == 9
    assert "couldn't communicate" in failed.stdout


def test_programs_of_the_tree_are_executable() -> None:
    for path in ("usr/bin/nvidia-smi", "usr/local/cuda-12.9/bin/nvcc", "usr/lib/hardware/mount"):
        assert os.access(tree.FILES / path, os.X_OK), path
    assert (tree.FILES / "usr/local/cuda/bin/nvcc").exists()
    json.dumps(fixtures.files(BED, 1))
