# SPDX-License-Identifier: GPL-3.0-or-later
"""A stream of requests through the whole session, and the table of what was measured at its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("MOLECULE_PROJECT_DIRECTORY") or Path(__file__).resolve().parents[3])
sys.path.insert(0, str(ROOT))

from testbed.faults.__main__ import open_load  # noqa: E402
from testbed.faults.judge import Result  # noqa: E402
from testbed.faults.load import Load  # noqa: E402
from testbed.faults.nodes import Cluster  # noqa: E402
from testbed.faults.table import rows, write  # noqa: E402

RESULTS: list[Result] = []


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return Cluster(Path(os.environ["BED_DIR"]).resolve(), ("-e", "@molecule/faults/vars/site.yml"))


@pytest.fixture(scope="session")
def load(cluster: Cluster) -> Iterator[Load]:
    stream = open_load(cluster)
    yield stream
    stream.stop()
    if RESULTS:
        print(f"\n{rows(RESULTS)}\n")
    if os.environ.get("FAULTS_WRITE"):
        write(ROOT / "docs/reliability.md", RESULTS)


@pytest.fixture(scope="session")
def results() -> list[Result]:
    return RESULTS
