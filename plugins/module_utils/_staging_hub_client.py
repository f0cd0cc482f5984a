# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Talks to the model hub with huggingface_hub, in whatever Python has it: a program of its own, not imported by us.

Reads one JSON order from standard input, answers with JSON lines on standard output. The token comes from a file that
the order names; it stands in no argument and no environment.

    {"do": "list", "repo", "revision", "endpoint", "token_file"}              -> {"revision", "files": [...]}
    {"do": "fetch", ..., "paths": [...], "into": folder, "workers": n}        -> {"file": path} for each, {"done": true}
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# Plain HTTP with ranges: what was cut goes on where it was. Set before the library is imported, which reads them once.
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"

TRIES = 8


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def token_of(order: dict[str, Any]) -> str | bool:
    """The token, from a file that only its owner can read; False asks without one."""
    path = order.get("token_file") or ""
    if not path or not os.path.exists(path):  # noqa: PTH110 - a program of its own, as small as it can be
        return False
    if os.stat(path).st_mode & 0o077:  # noqa: PTH116
        raise SystemExit(f"{path} can be read by others: chmod 600 {path}")
    with open(path) as stream:  # noqa: PTH123
        return stream.read().strip() or False


def list_files(order: dict[str, Any], token: str | bool) -> None:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=order.get("endpoint") or None, token=token)
    info = retried(lambda: api.model_info(order["repo"], revision=order.get("revision") or None, files_metadata=True))
    files = [
        {
            "path": entry.rfilename,
            "size": entry.size,
            "sha256": entry.lfs.sha256 if entry.lfs else "git:" + str(entry.blob_id),
        }
        for entry in info.siblings or []
    ]
    say({"revision": info.sha, "files": files})


def fetch(order: dict[str, Any], token: str | bool) -> None:
    from huggingface_hub import hf_hub_download

    def one(path: str) -> None:
        retried(
            lambda: hf_hub_download(
                order["repo"],
                path,
                revision=order["revision"],
                local_dir=order["into"],
                endpoint=order.get("endpoint") or None,
                token=token,
            )
        )
        say({"file": path})

    with ThreadPoolExecutor(int(order.get("workers") or 4)) as pool:
        for done in [pool.submit(one, path) for path in order["paths"]]:
            done.result()
    say({"done": True})


def retried(work: Any) -> Any:
    """Again after what passes (a cut connection, 429, 5xx), with growing pauses; at once up for what does not."""
    for attempt in range(TRIES):
        try:
            return work()
        except Exception as error:
            answer = getattr(error, "response", None)
            code = getattr(answer, "status_code", None)
            lasting = code is not None and code not in (408, 416, 429) and code < 500
            if lasting or attempt == TRIES - 1 or isinstance(error, (ValueError, TypeError)):
                raise
            asked = answer.headers.get("Retry-After", "") if answer is not None else ""
            pause = min(float(asked) if asked.isdigit() else 0.5 * 2**attempt, 30.0)
            say({"waiting": f"{type(error).__name__} {code or ''}".strip(), "pause": pause})
            time.sleep(pause)
    raise AssertionError("unreachable")


def main() -> int:
    order = json.load(sys.stdin)
    try:
        (list_files if order["do"] == "list" else fetch)(order, token_of(order))
    except Exception as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        say({"error": str(error).splitlines()[0] if str(error) else "", "kind": type(error).__name__, "code": code})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
