# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Make the W4A16 draft from the vendor's: refuse what is no DFlash draft, quantize, judge the result, put it in place.

The quantizing itself is done by a program in the engine's Python, with the library that owns the format; here is what
goes in, what is accepted of what comes out, and where it comes from, written down beside it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ._card_precision import of_name
from ._draft_check import PROVENANCE, check_draft, draft_fault
from ._draft_quant import KEEP, as_expression, modules
from ._mirror_work import Seen, commit, items, require_space, tidy
from ._model_tree import check
from ._model_tree_deep import settled_sum
from ._model_tree_store import BUILT, MANIFEST_VERSION, Store, digest, encode, load, load_manifest, write_atomic
from ._model_tree_types import SHARD
from ._progress_job import Job, JobError
from ._staging import private

# Expressions that match a module's whole name in the checkpoint.
QUANTIZE: Final = (r".*\.self_attn\.o_proj", r".*\.mlp\.(gate_proj|up_proj|down_proj)", "fc")


@dataclass(frozen=True)
class Order:
    """What is to be built."""

    root: str
    source: str
    name: str
    python: str
    program: str
    quantize: Sequence[str] = QUANTIZE
    group: int = 128
    source_repo: str = ""
    source_revision: str = ""


def ignore_entries(config: Mapping[str, Any], quantize: Sequence[str]) -> list[str]:
    """The `ignore` list: an expression for every kind of linear module that is not quantized, and the shared head."""
    left = [name for name in modules(config) if not any(re.fullmatch(text, name) for text in quantize)]
    return ["lm_head", *dict.fromkeys(as_expression(name) for name in left)]


def require_source(order: Order) -> dict[str, Any]:
    """The source's config; raises JobError with all that speaks against quantizing it."""
    folder = Path(order.root) / order.source
    tree = check(folder)
    faults = [f"{p['file'] or folder}: {p['found']}; expected {p['expected']}" for p in tree.problems]
    if not faults:
        found = check_draft(tree.config, tree.headers, {})
        if tree.config.get("quantization_config"):
            cure = "name the vendor's draft in BF16 as the source"
            found.append(draft_fault("config.json", "a quantization_config", "weights that are not quantized", cure))
        faults = [f"{f['file']}: {f['found']}; expected {f['expected']}; {f['cure']}" for f in found]
    for text in order.quantize:
        try:
            expression = re.compile(text)
        except re.error as error:
            faults.append(f"draft_builder_quantize: {text!r}: {error}")
            continue
        if kept := [name for name in modules(tree.config) if name.endswith(KEEP) and expression.fullmatch(name)]:
            faults.append(f"draft_builder_quantize: {text!r} matches {kept[0]}, which must stay in BF16")
    if faults:
        raise JobError(f"{folder} cannot be made into a W4A16 draft ({len(faults)} faults):\n" + "\n".join(faults))
    return tree.config


def options_of(order: Order) -> dict[str, Any]:
    """What the result depends on besides the source's files."""
    return {"quantize": list(order.quantize), "group_size": order.group, "bits": 4, "symmetric": True}


def is_current(order: Order) -> bool:
    """Whether the draft that is here was built from this source with these options."""
    store, source = Store(order.root, order.name), Store(order.root, order.source)
    made = load(store.tree / PROVENANCE)
    known = load_manifest(source.manifest)
    same = made.get("options") == options_of(order) and made.get("source_manifest") == digest(known)
    return bool(known) and same and check(store.tree, load_manifest(store.manifest)).complete


def build(order: Order, job: Job) -> dict[str, Any]:
    """Build the draft; nothing is in place before all of it was judged."""
    if is_current(order):
        return {"changed": False, "errors": load(Path(order.root) / order.name / PROVENANCE).get("errors", {})}
    config = require_source(order)
    source, store = Path(order.root) / order.source, Store(order.root, order.name)
    job.meter.phase("preparing", 0)
    shutil.rmtree(store.incoming, ignore_errors=True)
    store.incoming.mkdir(parents=True)
    size = sum(entry.size for entry in check(source).files.values())
    require_space(order.root, [], size)
    made = _run(order, config, job)
    _complete(order, source, store, made)
    manifest = _manifest(order, store)
    seen = Seen(store)
    for item in items(store, manifest):
        seen.add(item, settled_sum(item.here)[1])
    seen.save()
    tidy(store, manifest)
    _judge(store)
    commit(store, manifest)
    return {"changed": True, "errors": made["errors"], "bound": made["bound"]}


def _run(order: Order, config: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """The program in the engine's Python; its last word is the result."""
    if not Path(order.python).exists():
        raise JobError(f"{order.python} is not there: the builder works in the engine's environment")
    request = {
        "source": str(Path(order.root) / order.source),
        "into": str(Store(order.root, order.name).incoming),
        "quantize": list(order.quantize),
        "ignore": ignore_entries(config, order.quantize),
        "group": order.group,
    }
    process = subprocess.Popen(
        [order.python, "-IB", order.program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=job.inherited,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdin as stream:
        json.dump(request, stream)
    last: dict[str, Any] = {}
    try:
        for line in process.stdout:
            if job.stop.is_set():
                raise JobError("stopped: run again to build it")
            last = json.loads(line)
            if "total" in last:
                job.meter.phase("quantizing and reading back", last["total"], last["done"])
    finally:
        process.kill()
        noise = process.stderr.read()
        process.wait()
    if "result" not in last:
        raise JobError(f"{order.source}: {last.get('error') or (noise.strip().splitlines() or ['no message'])[-1]}")
    found: dict[str, Any] = last["result"]
    return found


def _complete(order: Order, source: Path, store: Store, made: Mapping[str, Any]) -> None:
    """What else belongs to the folder: the source's small files, and where all of it comes from."""
    for path in sorted(source.rglob("*")):
        name = str(path.relative_to(source))
        new = store.incoming / name
        if not path.is_file() or path.name.endswith((SHARD, ".index.json")) or private(name) or new.exists():
            continue
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, new)
    known = load_manifest(Store(order.root, order.source).manifest)
    repo = order.source_repo or str(known.get("repo") or "")
    provenance = {
        "source_repo": repo,
        "source_revision": order.source_revision or str(known.get("revision") or ""),
        "source_manifest": digest(known),
        "source_files": made["source_files"],
        "trained_for": of_name(repo or order.source),
        "options": options_of(order),
        "tools": made["tools"],
        "errors": made["errors"],
        "bound": made["bound"],
        "files": {path.name: settled_sum(path)[0] for path in sorted(store.incoming.glob(f"*{SHARD}"))},
    }
    write_atomic(store.incoming / PROVENANCE, encode(provenance))


def _manifest(order: Order, store: Store) -> dict[str, Any]:
    files = [
        {"path": str(path.relative_to(store.incoming)), "size": path.stat().st_size, "sha256": settled_sum(path)[0]}
        for path in sorted(store.incoming.rglob("*"))
        if path.is_file()
    ]
    manifest = {"version": MANIFEST_VERSION, "name": order.name, "repo": "", "revision": "", "files": files}
    return manifest | {"source": f"{BUILT}{order.source}"}


def _judge(store: Store) -> None:
    """The result must pass what every draft must pass before it is served."""
    tree = check(store.incoming)
    faults = [f"{p['file']}: {p['found']}" for p in tree.problems]
    found = check_draft(tree.config, tree.headers, {})
    faults += [f"{f['file']}: {f['found']}; expected {f['expected']}" for f in found]
    if faults:
        raise JobError(f"{store.name} was built and is not right, and was not put in place: {'; '.join(faults)}")
