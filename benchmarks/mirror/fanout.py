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
import signal
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
from ansible_collections.dgx_spark.vllm.plugins.module_utils._mirror_serve import Offer, greets, serve  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_state import states  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree_store import Store, load_manifest  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress import Meter  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._progress_job import Job  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging import Wanted, stage  # noqa: E402
from ansible_collections.dgx_spark.vllm.plugins.module_utils._staging_sources import Pushed  # noqa: E402

from testbed.models import make_shards  # noqa: E402

NAME, SECRET, PORT = "Shards", "only for this run", 8730
# Of this run alone; its nodes are told.
PREFIX = os.environ.setdefault("MIRROR_FANOUT", f"mb{os.getpid()}n")


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
    if order["do"] == "greet":
        print(greets(order["address"], PORT))
        return
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


def measure(head: Path, work: Path, receivers: int, rate: int, streams: int) -> tuple[float, float]:
    """Seconds until the last byte is at the last receiver, and until all is proved and on the disk.

    All receivers share this machine's one disk, which real ones do not: the first figure is the mirror's, the second
    holds what that disk costs.
    """
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
    try:
        make_network(count, rate)
        for number, host in enumerate(hosts):
            if planned[host]["offer"]:
                order: dict[str, Any] = {"do": "serve", "root": str(roots[number]), "address": address(number)}
                running.append(start(number, order | {"peers": planned[host]["peers"]}))
        wait_for_offers([n for n, host in enumerate(hosts) if planned[host]["offer"]])
        takers = []
        for number, host in enumerate(hosts[1:], start=1):
            order = {"do": "pull", "root": str(roots[number]), "manifest": manifest, "streams": streams}
            takers.append(start(number, order | {"sources": planned[host]["sources"]}))
        running += takers
        results = [json.loads(taker.communicate(timeout=900)[0]) for taker in takers]
        begun = min(r["begun"] for r in results)
        moved = max(r["begun"] + r["moving_s"] for r in results) - begun
        return float(moved), float(max(r["ended"] for r in results) - begun)
    finally:
        for process in running:
            if process.poll() is None:
                # The session of an offer or a taker holds its rsyncs; it is ours alone.
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
        remove_network(count)
        for root in roots[1:]:
            shutil.rmtree(root, ignore_errors=True)


def wait_for_offers(numbers: list[int]) -> None:
    for number in numbers:
        order = json.dumps({"do": "greet", "root": "", "address": address(number)})
        command = ["ip", "netns", "exec", namespace(number), sys.executable, __file__, "--node", order]
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
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
    # Ended from outside it leaves nothing behind either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
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
    first = seconds[options.receivers[0]][0]
    for number, (moved, settled) in seconds.items():
        share = f"{moved / first:.2f} times the first, {least / moved:.0%} of the link"
        print(f"{number} receivers: last byte after {moved:6.2f} s ({share}), all on the disk after {settled:.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
