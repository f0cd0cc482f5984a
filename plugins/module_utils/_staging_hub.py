# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The hub as a source: huggingface_hub does the work, in the engine's environment; here it is started and watched."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ._mirror_work import Item
from ._progress_job import Job, JobError
from ._staging import Listing

# Copies of the weights in other formats, which the engine does not read.
IGNORE: Final = ("original/*", "onnx/*", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "*.ot", "*.pth", "*.tflite")
_PARTIAL: Final = ".cache/huggingface/download"


class Hub:
    """One repository at one revision."""

    def __init__(
        self,
        repo: str,
        revision: str,
        python: str,
        client: Path,
        token_file: str = "",
        endpoint: str = "",
        ignore: Sequence[str] = IGNORE,
        workers: int = 8,
    ) -> None:
        self.order: dict[str, Any] = {"repo": repo, "revision": revision, "endpoint": endpoint, "workers": workers}
        self.order["token_file"] = token_file
        self.python = python
        self.client = client
        self.ignore = ignore
        self._partial: dict[str, int] = {}

    def listing(self, job: Job) -> Listing:
        answer = next((a for a in self._ask(job, {"do": "list"}) if "files" in a), None)
        if answer is None:
            raise JobError(f"{self.order['repo']}: the hub client gave no list")
        kept = [f for f in answer["files"] if not any(fnmatch.fnmatch(f["path"], p) for p in self.ignore)]
        # The commit, not the branch: what is fetched now is what is fetched when this is resumed.
        self.order["revision"] = answer["revision"]
        return Listing(answer["revision"], [(f["path"], int(f["size"]), f["sha256"]) for f in kept])

    def fetch(self, wanted: Sequence[Item], into: Path, job: Job) -> None:
        request = {"do": "fetch", "paths": [item.path for item in wanted], "into": str(into)}
        self._look(into)
        ended = threading.Event()

        def count() -> None:
            while not ended.wait(0.5):
                self._look(into)
                job.meter.at(sum(map(self.arrived, wanted)))

        watcher = threading.Thread(target=count, daemon=True)
        watcher.start()
        try:
            for answer in self._ask(job, request):
                job.meter.waiting(f"the hub answers {answer['waiting']}" if "waiting" in answer else "")
        finally:
            ended.set()
            watcher.join()
            job.meter.at(sum(map(self.arrived, wanted)))

    def _look(self, into: Path) -> None:
        """Sizes of what the client has not finished yet: it names these files by the sum that they will have."""
        found = {}
        for path in (into / _PARTIAL).rglob("*.incomplete"):
            with contextlib.suppress(OSError):
                found[path.name.split(".")[-2]] = path.stat().st_size
        self._partial = found

    def arrived(self, item: Item) -> int:
        return item.arrived() if item.here.is_file() else self._partial.get(item.sha256, 0)

    def _ask(self, job: Job, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Run the client and yield what it says; its error becomes ours, with a cure where there is one."""
        process = subprocess.Popen(
            [self.python, "-IB", str(self.client)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=job.inherited,
        )
        ended = threading.Event()
        threading.Thread(target=_end_on_stop, args=(job, process, ended), daemon=True).start()
        last: dict[str, Any] = {}
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with process.stdin as order:
                json.dump(self.order | dict(request), order)
            for line in process.stdout:
                try:
                    last = json.loads(line)
                except ValueError:
                    continue
                yield last
            code = process.wait()
        finally:
            ended.set()
            if process.poll() is None:
                process.kill()
        assert process.stderr is not None
        if job.stop.is_set():
            raise JobError("stopped before everything was here: run again to go on")
        if code:
            raise JobError(self._reason(last, process.stderr.read()))

    def _reason(self, last: Mapping[str, Any], noise: str) -> str:
        name = f"{self.order['repo']} at {self.order['revision'] or 'its default branch'}"
        code = last.get("code")
        if "error" not in last:
            said = (noise.strip().splitlines() or ["no message"])[-1]
            return f"{name}: {self.python} could not run the hub client: {said}"
        cures = {
            401: "the hub wants a token: put it in models_hub_token (vault) or in the token file, mode 0600",
            403: "the token may not read it: accept the model's licence on the hub with the token's account",
            404: "no such repository, revision or file: check repo and revision in the card",
        }
        cure = cures.get(code) if isinstance(code, int) else "run again to go on where this stopped"
        return f"{name}: {last['error'] or last.get('kind')}; {cure or 'run again to go on where this stopped'}"


def _end_on_stop(job: Job, process: subprocess.Popen[str], ended: threading.Event) -> None:
    while not ended.wait(0.2):
        if job.stop.is_set():
            process.terminate()
            return
