# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The draft that the builder made, served by the engine: the nodes' reboot before these tests loaded it."""

from __future__ import annotations

from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils._acceptance import Api, window

from tests.bed import nodes

testinfra_hosts = [f"ansible://{nodes.HEAD}"]
PROVENANCE = f"{nodes.MODELS}/Laguna-Chain-Tiny-DFlash-W4A16/provenance.json"
SHOW = f"{nodes.USER_BUS} systemctl --user show --timestamp=unix --value -p ExecMainStartTimestamp vllm-serve.service"


def test_the_built_draft_loads_serves_and_is_accepted(host: Any, api: Api) -> None:
    made = int(nodes.out(host, f"stat -c %Z {PROVENANCE}"))
    if int(nodes.out(host, SHOW).lstrip("@")) <= made:
        # Run alone, without the tests before: the server still has the draft of the fixture.
        nodes.out(host, f"{nodes.USER_BUS} systemctl --user restart vllm-serve.service")
    assert nodes.serving(api)["finish_reason"] == "stop"
    spun = window(api, nodes.MODEL, "assistant:", 300)
    assert spun["drafted"] > 200
    assert spun["acceptance"] > 0.9, spun
    assert min(spun["by_position"]) > 0
