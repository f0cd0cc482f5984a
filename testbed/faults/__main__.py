"""Runs faults on a bed that serves: `python -m testbed.faults [--bed DIR] [--only NAMES] [--write FILE]`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .catalog import chosen
from .judge import base_load, complaints, watch
from .load import Load
from .nodes import Cluster, FaultError, wait_for
from .table import row, write

READY_S = 240


def open_load(cluster: Cluster, threads: int = 2) -> Load:
    """A stream of requests from outside, with the key that the head made."""
    key = cluster.head.run("head -n 1 .config/dgx-spark-vllm/api.keys").strip()
    model = cluster.head.run(
        "python3 -c \"import json; print(json.load(open('.config/dgx-spark-vllm/serve.json'))['model'])\""
    ).strip()
    load = Load(f"http://{cluster.addresses[cluster.head.name]}:8000", key, model, threads)
    wait_for(lambda: "" if load.once().answered else "no answer", READY_S, "the bed serves")
    return load.start()


def main() -> int:
    """Exit code 0 where every fault came out as it has to."""
    parser = argparse.ArgumentParser(prog="testbed.faults", description=__doc__)
    parser.add_argument("--bed", default=os.environ.get("BED_DIR", ".bed"), help="folder of the bed")
    parser.add_argument("--only", default="all", help="ci, all, or names of faults with commas")
    parser.add_argument("--write", help="file whose table is renewed")
    parser.add_argument("--site-vars", help="file with variables that every play gets")
    options = parser.parse_args()
    cluster = Cluster(Path(options.bed).resolve(), ("-e", f"@{options.site_vars}") if options.site_vars else ())
    load = open_load(cluster)
    bad = 0
    for fault in chosen(options.only):
        try:
            result = watch(cluster, load, fault, base_load(cluster))
        except FaultError as err:
            print(f"{fault.name}: {err}", flush=True)
            return 1
        found = complaints(result, cluster)
        bad += bool(found)
        print(f"{fault.name}: {'; '.join(found) or 'ok'} {row(result)}", flush=True)
        if options.write:
            write(Path(options.write), [result])
    load.stop()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
