# SPDX-License-Identifier: GPL-3.0-or-later
"""Each fault alone, under a running stream of requests."""

from __future__ import annotations

import os

import pytest

from testbed.faults.catalog import Fault, chosen
from testbed.faults.judge import Result, base_load, complaints, watch
from testbed.faults.load import Load
from testbed.faults.nodes import Cluster


@pytest.mark.parametrize("fault", chosen(os.environ.get("FAULTS", "ci")), ids=lambda fault: fault.name)
def test_serving_again_by_itself(cluster: Cluster, load: Load, results: list[Result], fault: Fault) -> None:
    result = watch(cluster, load, fault, base_load(cluster))
    results.append(result)
    assert complaints(result, cluster) == []


def test_nothing_that_was_served_was_wrong(load: Load) -> None:
    """A request is answered in full or gets an error; half an answer would be neither."""
    assert any(outcome.answered for outcome in load.outcomes)
    assert [o.text for o in load.outcomes if not o.answered and o.text.endswith(" tokens")] == []
