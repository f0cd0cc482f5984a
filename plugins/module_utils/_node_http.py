# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The API of the server as a node asks it: one completion, health, metrics. Standard library only."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from ._node_config import config_root, first_line


class Api:
    """The server that a configuration `serve.json` describes, asked with the first key."""

    def __init__(self, serve: Mapping[str, Any]) -> None:
        self.base = str(serve["url"]).rstrip("/")
        self.serve = serve
        # A proxy of the environment must never see these requests.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def _headers(self) -> dict[str, str]:
        # Read anew each time: keys change while this runs.
        key = first_line(config_root() / "api.keys")
        return {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}

    def get(self, path: str, timeout_s: float) -> tuple[int, str]:
        """Status and body; status 0 and the reason where no answer came."""
        return self._ask(urllib.request.Request(self.base + path, headers=self._headers()), timeout_s)

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> tuple[int, str]:
        """Status and body; status 0 and the reason where no answer came."""
        data = json.dumps(body).encode()
        return self._ask(urllib.request.Request(self.base + path, data, self._headers(), method="POST"), timeout_s)

    def _ask(self, request: urllib.request.Request, timeout_s: float) -> tuple[int, str]:
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                return int(answer.status), answer.read().decode(errors="replace")
        except urllib.error.HTTPError as err:
            return err.code, err.read().decode(errors="replace")
        except (OSError, ValueError) as err:
            return 0, str(getattr(err, "reason", err))

    def completion(self, max_tokens: int, timeout_s: float, prompt: str = "") -> str:
        """Ask for a real completion; empty where its tokens came, else what came instead."""
        body = {
            "model": self.serve["model"],
            "prompt": prompt or self.serve.get("probe_prompt") or "Hello",
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        status, text = self.post("/v1/completions", body, timeout_s)
        return judge_completion(status, text, max_tokens)


def judge_completion(status: int, text: str, max_tokens: int) -> str:
    """Empty where the answer holds as many tokens as were asked for, else what is wrong with it."""
    if status != 200:
        return f"status {status}: {text[:200]}" if status else f"no answer: {text[:200]}"
    try:
        tokens = int(json.loads(text)["usage"]["completion_tokens"])
    except (ValueError, KeyError, TypeError):
        return f"not an answer of the API: {text[:200]}"
    return "" if tokens >= max_tokens else f"{tokens} of {max_tokens} tokens"


def parse_metrics(text: str) -> dict[str, float]:
    """Sums over all labels of each metric of a metrics page."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        name, _unused, rest = line.partition("{") if "{" in line else line.partition(" ")
        value = rest.rpartition("} ")[2] if "{" in line else rest
        try:
            sums[name] = sums.get(name, 0.0) + float(value.split()[0])
        except (ValueError, IndexError):
            continue
    return sums
