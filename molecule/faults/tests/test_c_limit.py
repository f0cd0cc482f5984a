# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that cannot start: after the limit everything stands still, and the reason is in one place."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from testbed.faults.nodes import PROGRAM, Cluster, wait_for

# The limit of ten is the same mechanism; two keep CI short, FAULTS=all waits for all ten.
DROP_IN = ".config/systemd/user/vllm-serve.service.d/90-test.conf"
FAILURES = 10 if os.environ.get("FAULTS") == "all" else 2
DRAFT = "models/Laguna-Chain-Tiny-DFlash-W4A16/config.json"


def status(cluster: Cluster) -> dict[str, Any]:
    return dict(json.loads(cluster.head.run(f"{PROGRAM} status --json", timeout=60)))


def available(cluster: Cluster) -> int:
    """MiB; the nodes are on one machine, so this is what both have."""
    return int(cluster.head.run("awk '/MemAvailable/ {print $2}' /proc/meminfo")) // 1024


def test_a_broken_draft_ends_in_standing_still_with_the_reason(cluster: Cluster) -> None:
    head, serving = cluster.head, available(cluster)
    head.run(f"mkdir -p $(dirname {DROP_IN}) && printf '[Unit]\\nStartLimitBurst={FAILURES}\\n' > {DROP_IN}")
    head.run(f'cp {DRAFT} /tmp/draft.json && sed -i \'s/"model_type"/"no_type"/; s/"dflash_config"/"x"/\' {DRAFT}')
    head.run("systemctl --user daemon-reload && systemctl --user reset-failed vllm-serve")
    try:
        head.run("systemctl --user kill -s KILL vllm-serve")
        wait_for(
            lambda: (
                "" if head.run("systemctl --user is-active vllm-halt", check=False).strip() == "active" else "not yet"
            ),
            120 * FAILURES,
            "standing still",
            3,
        )
        wait_for(lambda: " ".join(f"{n} {what}" for what, n in cluster.engines().items() if n), 90, "no engine is left")
        found = status(cluster)
        assert found["halted"]["failures"] >= FAILURES
        assert re.search(rf"\d+ failed starts: .*Unrecognized model in \S*{DRAFT.split('/')[1]}", found["reason"])
        # Two ranks, the core and the server hold more than this, without Ray's own.
        assert available(cluster) > serving + 2048
        assert head.run("pgrep -x raylet", check=False) == ""
        before = head.history()
        assert head.run("systemctl --user is-active vllm-serve", check=False).strip() == "failed"
        assert before[-1]["what"] in ("halted", "stopped")
    finally:
        head.run(f"cp /tmp/draft.json {DRAFT}; rm -f {DROP_IN}; systemctl --user daemon-reload")


def test_a_start_after_the_cure_serves(cluster: Cluster) -> None:
    cluster.head.run("systemctl --user reset-failed vllm-serve; systemctl --user start vllm-serve", timeout=300)
    assert cluster.state() == "active"
    assert status(cluster)["reason"] == ""
    assert status(cluster)["halted"] == {}
