#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time of a mirror to 2, 4 and 8 receivers, every link limited to the same rate in each direction.

    sudo python benchmarks/mirror/fanout.py [--receivers 2 4 8] [--bytes 240000000] [--rate 200]

Nodes are network namespaces on one switch; in each runs what the role runs on a node, without Ansible around it. The
plan (who takes from whom) is the role's own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_plan import plan  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_pull import Order, Source, pull  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_serve import Offer, serve  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_state import states  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import Store, load_manifest  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import Meter  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging import Wanted, stage  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging_sources import Pushed  # noqa: E402

from testbed.models import make_shards  # noqa: E402

NAME, SECRET, PORT, PREFIX = "Shards", "only for this run", 8730, "mirbench"


def ip(*words: str, namespace: str = "") -> None:
    subprocess.run(["ip", *(["-n", namespace] if namespace else []), *words], check=True)


def namespace(number: int) -> str:
    return f"{PREFIX}{number}"


def address(number: int) -> str:
    return f"10.251.0.{number + 1}"


def make_network(count: int, rate: int) -> None:
    """A switch, and a node on each of its ports; both ends of a cable send at the limited rate."""
    ip("netns", "add", f"{PREFIX}sw")
    ip("link", "add", "sw", "type", "bridge", namespace=f"{PREFIX}sw")
    ip("link", "set", "sw", "up", namespace=f"{PREFIX}sw")
    for number in range(count):
        ip("netns", "add", namespace(number))
        ip("link", "add", "eth", "netns", namespace(number), "type", "veth", "peer", "name", f"p{number}",
           "netns", f"{PREFIX}sw")  # fmt: skip
        ip("link", "set", f"p{number}", "master", "sw", "up", namespace=f"{PREFIX}sw")
        ip("addr", "add", f"{address(number)}/24", "dev", "eth", namespace=namespace(number))
        ip("link", "set", "lo", "up", namespace=namespace(number))
        ip("link", "set", "eth", "up", namespace=namespace(number))
        for where, device in ((namespace(number), "eth"), (f"{PREFIX}sw", f"p{number}")):
            limit = ["tbf", "rate", f"{rate}mbit", "burst", "256kb", "latency", "50ms"]
            subprocess.run(
                ["ip", "netns", "exec", where, "tc", "qdisc", "add", "dev", device, "root", *limit], check=True
            )


def remove_network(count: int) -> None:
    for name in [f"{PREFIX}sw", *map(namespace, range(count))]:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def on_node(order: dict[str, Any]) -> None:
    """What one node does: offer, and take; told by its order."""
    root = order["root"]
    job = Job(Meter())
    if order["do"] == "serve":
        serve(Offer(root, [NAME], [order["address"]], PORT, order["peers"], SECRET, Path(root) / "offer"), job)
        return
    sources = [Source(s["host"], s["addresses"], PORT, s["chained"]) for s in order["sources"]]
    begun = time.time()
    found = pull(Order(root, {NAME: order["manifest"]}, sources, SECRET, Path(root), order["streams"]), job)
    print(json.dumps({"begun": begun, "ended": time.time(), **found}))


def start(number: int, order: dict[str, Any]) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", namespace(number), sys.executable, __file__, "--node", json.dumps(order)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def measure(head: Path, work: Path, receivers: int, rate: int, streams: int) -> float:
    """Seconds until the last receiver has everything, proved."""
    count = receivers + 1
    roots = [head, *[work / f"receiver{number}" for number in range(1, count)]]
    for root in roots[1:]:
        root.mkdir()
    hosts = [f"n{number}" for number in range(count)]
    wanted = [{"name": NAME, "role": "target"}]
    found: dict[str, dict[str, Any]] = {
        host: {"models": states(str(root), wanted, {}), "disk_free": 1 << 60}
        for host, root in zip(hosts, roots, strict=True)
    }
    addresses = {host: [address(number)] for number, host in enumerate(hosts)}
    planned = plan(hosts, wanted, found, addresses, "", 0)["hosts"]
    manifest = load_manifest(Store(head, NAME).manifest)
    running: list[subprocess.Popen[str]] = []
    make_network(count, rate)
    try:
        for number, host in enumerate(hosts):
            if planned[host]["offer"]:
                order: dict[str, Any] = {"do": "serve", "root": str(roots[number]), "address": address(number)}
                running.append(start(number, order | {"peers": planned[host]["peers"]}))
        wait_for_offers([n for n, host in enumerate(hosts) if planned[host]["offer"]])
        takers = []
        for number, host in enumerate(hosts[1:], start=1):
            order = {"do": "pull", "root": str(roots[number]), "manifest": manifest, "streams": streams}
            takers.append(start(number, order | {"sources": planned[host]["sources"]}))
        results = [json.loads(taker.communicate(timeout=900)[0]) for taker in takers]
        return float(max(r["ended"] for r in results) - min(r["begun"] for r in results))
    finally:
        for process in running:
            # The offer's session holds its daemons; it is ours alone.
            os.killpg(process.pid, 15)
            process.wait()
        remove_network(count)
        for root in roots[1:]:
            shutil.rmtree(root, ignore_errors=True)


def wait_for_offers(numbers: list[int]) -> None:
    for number in numbers:
        check = f"import fanout; print(fanout.greets('{address(number)}', {PORT}))"
        command = ["ip", "netns", "exec", namespace(number), sys.executable, "-c", check]
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
            if done.stdout.strip() == "True":
                break
            time.sleep(0.1)
        else:
            raise SystemExit(f"node {number} offers nothing: {done.stderr}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--receivers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--bytes", type=int, default=240_000_000)
    parser.add_argument("--rate", type=int, default=200, help="Mbit/s of every link, each way")
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--node", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.node:
        on_node(json.loads(options.node))
        return 0
    work = Path(tempfile.mkdtemp(prefix="mirror-fanout-"))
    try:
        head = work / "head"
        make_shards.make(head / NAME, options.bytes, 24)
        stage(str(head), [(Wanted(NAME, "", ""), Pushed([]), "")], 0, Job(Meter()))
        seconds = {n: measure(head, work, n, options.rate, options.streams) for n in options.receivers}
    finally:
        shutil.rmtree(work, ignore_errors=True)
    least = options.bytes * 8 / options.rate / 1e6
    size = f"{options.bytes / 1e6:.0f} MB in 24 shards"
    print(f"{size}, links of {options.rate} Mbit/s: {least:.1f} s if the head sends once")
    for number, took in seconds.items():
        print(f"{number} receivers: {took:6.2f} s  ({took / seconds[options.receivers[0]]:.2f} times the first, "
              f"{least / took:.0%} of the link)")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
