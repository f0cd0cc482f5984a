# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases on two real nodes: killed at any moment, damaged, patched on one side only, gone back from."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.bed import nodes, plays
from tests.engine.releases import NODES, Bed

testinfra_hosts = [f"ansible://{nodes.HEAD}"]
SITE = "lib/python3.13/site-packages"
PATCH = "laguna_dflash_get_cache_scale"
KILLS = int(os.environ.get("ENGINE_KILLS", "2"))


def test_check_mode_on_empty_nodes_says_what_it_would_do(bed: Bed) -> None:
    done = bed.run(1, "--check", "--diff")
    assert not done.failed, done.said()
    assert f"build release {bed.name(1)}: 3 packages, vLLM 0.25.1+cpu, torch 2.11.0" in done.output
    assert bed.on_all(f"ls -A {nodes.STATE}/releases 2>/dev/null | wc -l") == dict.fromkeys(NODES, "0")


def test_an_install_is_equal_on_all_nodes_and_patched(bed: Bed) -> None:
    bed.install(1)
    assert bed.equal(bed.name(1))
    guarded = bed.on_all(
        f"grep -c 'hasattr(self.quant_config' {nodes.STATE}/current/{SITE}/vllm/model_executor/models/*.py"
    )
    assert set(guarded.values()) == {"1"}
    # Half of what a release takes on a disk is had again at any time.
    assert set(bed.on_all(f"ls -A {nodes.STATE}/wheelhouse 2>/dev/null | wc -l").values()) == {"0"}


def test_a_run_that_changes_nothing_takes_four_tasks_a_node(bed: Bed) -> None:
    book = bed.book([{"role": f"dgx_spark.vllm.{name}"} for name in ("engine", "patches")])
    done = bed.run(1, book=book)
    assert not done.failed, done.said()
    assert done.changed == {name: [] for name in NODES}, done.said()
    # Behind the report stands what came on stderr.
    (report,) = json.JSONDecoder().raw_decode(done.output, done.output.index("{\n"))[0]["plays"]
    tasks = [task for task in report["tasks"] if ".deployment :" not in task["task"]["name"]]
    for name in NODES:
        did = [task for task in tasks if not task["hosts"].get(name, {"skipped": True}).get("skipped")]
        assert 1 < len(did) <= 4, [task["task"]["name"] for task in did]
    times = [task["task"]["duration"] for task in tasks]
    began, ended = (datetime.fromisoformat(text) for text in (times[0]["start"], times[-1]["end"]))
    # Other scenarios run beside this one, so this is no bound; docs/engine.md has the figure of a quiet machine.
    print(f"engine and patches with nothing to do: {(ended - began).total_seconds():.2f} s")


def test_killed_at_random_moments_every_next_run_ends_right(bed: Bed) -> None:
    """C48: SIGKILL to the whole play, spread over an installation and its switch; what was serving is never touched.

    Twice in a test run, to keep that short; ENGINE_KILLS=20 tests/scenarios.py engine kills twenty.
    """
    generator = random.Random(os.environ.get("ENGINE_SEED", "5"))
    began = time.monotonic()
    bed.install(99, engine_keep=1)
    whole = time.monotonic() - began
    moments: list[float] = []
    number = 99
    while len(moments) < KILLS:
        number += 1
        serving = bed.current()
        assert len(serving) == 1
        (old,) = serving
        before = bed.sums(old)
        program = str(Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "-i", bed.inventory, "playbooks/engine.yml", *bed.arguments(number, engine_keep=1)]
        process = subprocess.Popen(
            argv, cwd=nodes.ROOT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        # One in every part of the time that a whole run takes, at a random moment of it.
        pause = whole * (len(moments) + generator.random()) / KILLS
        began = time.monotonic()
        try:
            process.wait(pause)
            # It was faster than the one before: that does not count.
            whole = 0.95 * (time.monotonic() - began)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            moments.append(round(pause, 1))
        assert bed.current() <= {old, bed.name(number)}
        assert bed.sums(old) == before
        bed.install(number, engine_keep=1)
        assert bed.equal(bed.name(number))
        assert bed.sums(old) == before
        # Nothing is left of what was killed, and of what was before only what is to be kept.
        there = bed.on_all(f"ls {nodes.STATE}/releases")
        assert there == dict.fromkeys(NODES, "\n".join(sorted([old, bed.name(number)])))
    print(f"killed {len(moments)} times, of a run of {whole:.1f} s after {moments} s")


def cut_power_while_it_builds(bed: Bed, number: int) -> int:
    """Power of the worker goes and comes back as soon as its build is seen; how the play ends."""
    program = str(Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "-i", bed.inventory, "playbooks/engine.yml", *bed.arguments(number)]
    process = subprocess.Popen(argv, cwd=nodes.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen = f"until test -d {nodes.STATE}/releases/{bed.name(number)}/lib; do sleep 0.05; done"
    tool = str(nodes.ROOT / "testbed/bed")
    try:
        nodes.out(bed.hosts[nodes.WORKER], f"timeout 300 sh -c '{seen}'")
        subprocess.run([tool, "kill", nodes.WORKER], check=True)
        subprocess.run([tool, "start", nodes.WORKER], check=True)
        return process.wait(150)
    finally:
        process.kill()


def test_a_power_cut_in_the_middle_of_a_build(bed: Bed) -> None:
    # A build of three small packages may be over before the cut: then once more.
    for number in range(200, 204):
        (old,) = bed.current()
        before = bed.sums(old)
        if cut_power_while_it_builds(bed, number):
            break
        assert bed.current() == {bed.name(number)}
    else:
        pytest.fail("four builds were over before the power was cut")
    # The play failed: no node may switch when the work of another one was lost.
    assert bed.current() == {old}
    bed.install(number)
    assert bed.sums(old) == before


def test_a_switch_that_fails_on_one_node_leaves_all_on_the_old_one(bed: Bed) -> None:
    (serving,) = bed.current()
    # Something that no link can take the place of.
    nodes.out(bed.hosts[nodes.WORKER], f"cd {nodes.STATE} && mv current kept && mkdir -p current/full")
    try:
        done = bed.run(209)
    finally:
        nodes.out(bed.hosts[nodes.WORKER], f"cd {nodes.STATE} && rm -r current && mv kept current")
    assert done.failed
    assert "all nodes are on the release that they had" in done.output
    assert "Make the release current" in done.text[nodes.HEAD], "the head had switched, and went back"
    assert bed.current() == {serving}
    bed.install(209)


def damage(bed: Bed, path: str) -> None:
    """Flip a bit of a file on the worker, under the same size and time."""
    program = (
        "import os, sys\npath = sys.argv[1]\nstat = os.stat(path)\n"
        "content = bytearray(open(path, 'rb').read())\ncontent[len(content) // 2] ^= 1\n"
        "open(path, 'wb').write(content)\nos.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))\n"
    )
    nodes.out(
        bed.hosts[nodes.WORKER],
        f"python3 -c '{program}' {nodes.STATE}/current/{path}".replace("'rb'", '"rb"').replace("'wb'", '"wb"'),
    )


def test_a_flipped_bit_on_the_worker_is_found_and_repaired_alone(bed: Bed) -> None:
    bed.install(300)
    damage(bed, f"{SITE}/torch/lib/libtorch.so")
    quick = bed.run(300)
    assert quick.changed == {name: [] for name in NODES}, "only a deep check reads every byte"
    stamps = bed.on_all(f"find {nodes.STATE}/current/ -type f -path '*site-packages*' -printf '%i %p\\n' | sort")
    deep = bed.run(300, "--diff", engine_deep=True)
    assert not deep.failed, deep.said()
    assert f"torch: {SITE}/torch/lib/libtorch.so: changed" in deep.text[nodes.WORKER]
    assert "torch:" not in deep.text[nodes.HEAD]
    after = bed.on_all(f"find {nodes.STATE}/current/ -type f -path '*site-packages*' -printf '%i %p\\n' | sort")
    assert after[nodes.HEAD] == stamps[nodes.HEAD]
    moved = set(after[nodes.WORKER].splitlines()) - set(stamps[nodes.WORKER].splitlines())
    assert [line.rpartition("/")[2] for line in moved] == ["libtorch.so"]
    assert bed.equal(bed.name(300))


def test_patched_on_the_head_only_is_reported_and_repaired(bed: Bed) -> None:
    """C53."""
    module = f"{nodes.STATE}/current/{SITE}/vllm/model_executor/models/laguna_dflash.py"
    kept = f"{nodes.STATE}/current/patches"
    nodes.out(bed.hosts[nodes.WORKER], f"cp {kept}/{PATCH}.orig {module} && rm {kept}/*")
    done = bed.run(300)
    assert not done.failed, done.said()
    assert "patches of release" in done.output
    assert done.changed[nodes.HEAD] == [], done.said()
    assert set(bed.on_all(f"grep -c 'hasattr(self.quant_config' {module}").values()) == {"1"}


def test_unknown_content_stops_everything_and_is_left_alone(bed: Bed) -> None:
    """C51, in a release that is otherwise whole: the patch's target is another vLLM's."""
    owner = bed.folder / "patches"
    owner.mkdir(exist_ok=True)
    text = (nodes.ROOT / f"roles/patches/files/{PATCH}.toml").read_text(encoding="utf-8")
    text = text.replace("scale_name := self.quant_config", "scale_name := self.other_config").replace(
        "hasattr(self.quant_config", "hasattr(self.other_config"
    )
    (owner / "other.toml").write_text(
        text.replace("547e6f8a", "00000000").replace("86019018", "00000001"), encoding="utf-8"
    )
    before = bed.sums(bed.name(300))
    done = bed.run(300, engine_patches=[PATCH, "other"], engine_patches_dir=str(owner))
    assert done.failed
    assert "this anchor does not occur exactly once" in done.output
    assert "the file is untouched" in done.output
    assert bed.sums(bed.name(300)) == before
    bed.install(300)


def test_back_and_forward_again(bed: Bed) -> None:
    bed.install(301)
    first = bed.current()
    done = rollback(bed)
    assert not done.failed, done.said()
    assert bed.current() != first
    assert bed.current() == {bed.name(300)}
    bed.install(301)
    wanted = rollback(bed, engine_rollback_to=bed.name(300))
    assert not wanted.failed, wanted.said()
    assert bed.current() == {bed.name(300)}


def rollback(bed: Bed, **more: Any) -> plays.Outcome:
    """The first play of playbooks/rollback.yml alone: there is no model on this bed to restart."""
    role = {"name": "dgx_spark.vllm.engine", "tasks_from": "rollback"}
    book = bed.book([], [{"name": "Go back", "ansible.builtin.import_role": role}])
    return plays.run(book, "-e", json.dumps(more), inventory=bed.inventory)


def test_nothing_to_go_back_to_is_refused_with_the_reason(bed: Bed) -> None:
    current = bed.current()
    done = rollback(bed, engine_rollback_to="0123456789abcdef")
    assert done.failed
    assert "release 0123456789abcdef" in done.output
    assert f"beside the current {next(iter(current))}" in done.output
    for name in bed.on_all(f"ls {nodes.STATE}/releases")[nodes.HEAD].split():
        if name not in current:
            bed.on_all(f"rm -rf {nodes.STATE}/releases/{name}")
    done = rollback(bed)
    assert done.failed
    assert "there is nothing to go back to" in done.output
    assert bed.current() == current


def test_an_environment_that_is_there_is_used_as_it_is(bed: Bed) -> None:
    """C40."""
    name = next(iter(bed.current()))
    bed.on_all(f"mkdir -p ~/venvs && cp -a {nodes.STATE}/releases/{name} ~/venvs/vllm-025")
    bed.on_all("cd ~/venvs/vllm-025 && rm -rf manifest.json release.json generated.zip patches")
    before = bed.on_all("find ~/venvs -printf '%p %T@ %i\\n' | sort | sha256sum")
    done = bed.run(300, engine_adopt="~/venvs/vllm-025")
    assert not done.failed, done.said()
    assert bed.on_all(f"readlink {nodes.STATE}/current") == dict.fromkeys(NODES, "/home/spark/venvs/vllm-025")
    again = bed.run(300, engine_adopt="~/venvs/vllm-025")
    assert again.changed == {host: [] for host in NODES}, again.said()
    assert bed.on_all("find ~/venvs -printf '%p %T@ %i\\n' | sort | sha256sum") == before
    done = rollback(bed)
    assert not done.failed, done.said()
    assert bed.current() == {name}


def test_a_node_that_lacks_the_release_gets_it_alone(bed: Bed) -> None:
    (name,) = bed.current()
    nodes.out(bed.hosts[nodes.WORKER], f"rm -rf {nodes.STATE}/releases/{name}")
    stamp = nodes.out(bed.hosts[nodes.HEAD], f"stat -c %Y {nodes.STATE}/releases/{name}/manifest.json")
    started = time.monotonic()
    bed.install(300)
    print(f"one node again: {time.monotonic() - started:.1f} s")
    assert nodes.out(bed.hosts[nodes.HEAD], f"stat -c %Y {nodes.STATE}/releases/{name}/manifest.json") == stamp
