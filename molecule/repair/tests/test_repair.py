# SPDX-License-Identifier: GPL-3.0-or-later
"""Break one thing; a dry run names it on the right host; a run mends it and touches nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.bed import nodes, plays

testinfra_hosts = [f"ansible://{nodes.HEAD}"]
SITE = f"{nodes.STATE}/current/lib/python3*/site-packages"
USER = f"{nodes.USER_BUS} systemctl --user"


@dataclass(frozen=True)
class Break:
    """A thing that is broken on one host.

    command: breaks it; named: what the dry run must say of the host; mended: a command that succeeds only when it
    is whole; restarts: whether mending it has to stop what serves.
    """

    host: str
    command: str
    named: str
    mended: str
    restarts: bool = False


BREAKS = {
    "linger off": Break(
        nodes.WORKER,
        "sudo loginctl disable-linger spark",
        "linger",
        "test -e /var/lib/systemd/linger/spark",
    ),
    "unit file edited": Break(
        nodes.WORKER,
        "echo '# edited by hand' >> ~/.config/systemd/user/vllm-ray-worker.service",
        "vllm-ray-worker.service",
        "! grep -q 'edited by hand' ~/.config/systemd/user/vllm-ray-worker.service",
        restarts=True,
    ),
    "unit stopped and disabled": Break(
        nodes.HEAD,
        f"{USER} disable --now vllm-serve.service",
        "vllm-serve.service",
        f"{USER} is-active vllm-serve.service && {USER} is-enabled vllm-serve.service",
        restarts=True,
    ),
    "package removed from the venv": Break(
        nodes.WORKER,
        f"rm -rf {SITE}/tqdm",
        "tqdm",
        f"test -e {SITE}/tqdm/__init__.py",
        restarts=True,
    ),
    "patch reverted": Break(
        nodes.WORKER,
        "python3 - <<'END'\n"
        "import glob\n"
        f"(path,) = glob.glob('{SITE}/vllm/model_executor/models/laguna_dflash.py')\n"
        "text = open(path).read()\n"
        "assert 'hasattr(self.quant_config' in text\n"
        "guard = 'hasattr(self.quant_config, \"get_cache_scale\")'\n"
        "open(path, 'w').write(text.replace(guard, 'True'))\n"
        "END",
        "laguna_dflash",
        f"grep -q 'hasattr(self.quant_config' {SITE}/vllm/model_executor/models/laguna_dflash.py",
        restarts=True,
    ),
    "shard truncated": Break(
        nodes.WORKER,
        f"truncate -s -100 $(ls {nodes.MODELS}/Laguna-Chain-Tiny/model-*.safetensors | tail -1)",
        "Laguna-Chain-Tiny",
        "true",
    ),
    "wrong environment": Break(
        nodes.WORKER,
        f"sed -i 's/192[.]168/192.0/' {nodes.CONFIG}/fabric.json",
        "fabric.json",
        f"grep -q '192[.]168' {nodes.CONFIG}/fabric.json",
        restarts=True,
    ),
    "Ray killed": Break(
        nodes.WORKER,
        f"{USER} kill -s KILL vllm-ray-worker.service; {USER} stop vllm-ray-worker.service",
        "vllm-ray-worker.service",
        f"{USER} is-active vllm-ray-worker.service",
        restarts=True,
    ),
    "key removed": Break(
        nodes.HEAD,
        f"rm {nodes.CONFIG}/api.env",
        # The key itself, and what is said of it, stay out of every log.
        "secrets",
        f"grep -q ^VLLM_API_KEY= {nodes.CONFIG}/api.env",
        restarts=True,
    ),
    "model folder emptied": Break(
        nodes.WORKER,
        f"rm -rf {nodes.MODELS}/Laguna-Chain-Tiny/*",
        "Laguna-Chain-Tiny",
        f"test -e {nodes.MODELS}/Laguna-Chain-Tiny/config.json",
    ),
}


def invocation(host: Any) -> str:
    """Identity of the running server: another one after a restart."""
    return nodes.unit_property(host, "vllm-serve.service", "InvocationID")


@pytest.mark.parametrize("name", BREAKS)
def test_a_run_mends_what_is_broken(host: Any, name: str) -> None:
    broken = BREAKS[name]
    inventory = host.backend.ansible_inventory
    there = host.get_host(f"ansible://{broken.host}", ansible_inventory=inventory)
    address = host.backend.get_variables()["ansible_host"]
    before = invocation(host)
    nodes.out(there, broken.command)
    dry = plays.run("site.yml", "--check", "--diff", inventory=inventory)
    assert not dry.failed, dry.said()
    assert dry.changed[broken.host], dry.said()
    assert dry.names(broken.host, broken.named), dry.said()
    wet = plays.run("site.yml", inventory=inventory)
    assert not wet.failed, wet.said()
    assert wet.changed[broken.host], wet.said()
    nodes.out(there, broken.mended)
    nodes.serving(nodes.api_of(host, address))
    if not broken.restarts:
        assert invocation(host) == before
        (other,) = {nodes.HEAD, nodes.WORKER} - {broken.host}
        assert wet.changed[other] == [], wet.said()


def test_after_all_repairs_a_run_changes_nothing(host: Any) -> None:
    outcome = plays.run("site.yml", inventory=host.backend.ansible_inventory)
    assert not outcome.failed, outcome.said()
    assert outcome.changed == {nodes.HEAD: [], nodes.WORKER: []}
