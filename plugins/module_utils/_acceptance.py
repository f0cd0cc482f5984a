# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Whether a model really serves: real completions, judged against what the card expects.

`/health` and the list of models can answer 200 while not one token comes, so nothing here asks them. Counters are
compared over a window, before and after, because they run since the server's start.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ._report import Fault, fault

_SAMPLE = re.compile(r"^(?P<name>[\w:]+)\{(?P<labels>[^}]*)\}\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

COUNTERS = {
    "drafts": "vllm:spec_decode_num_drafts_total",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
    "by_position": "vllm:spec_decode_num_accepted_tokens_per_pos_total",
}
"""Counters of vLLM's /metrics page."""


class ApiError(Exception):
    """The API did not give what was asked of it; the text says what it gave instead."""


@dataclass(frozen=True)
class Counters:
    """Speculation counters of one model, summed over its engines."""

    drafts: float = 0
    drafted: float = 0
    accepted: float = 0
    by_position: dict[int, float] = field(default_factory=dict)

    def since(self, before: Counters) -> Counters:
        """The counts of the window that began at `before`."""
        return Counters(
            self.drafts - before.drafts,
            self.drafted - before.drafted,
            self.accepted - before.accepted,
            {pos: count - before.by_position.get(pos, 0) for pos, count in self.by_position.items()},
        )

    @property
    def acceptance(self) -> float | None:
        """Accepted tokens per drafted token, or None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def mean_length(self) -> float | None:
        """Tokens per step of the target: its own and those accepted of the draft."""
        return 1 + self.accepted / self.drafts if self.drafts else None


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels (in any order) and value of each labelled sample of a Prometheus text page."""
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match:
            try:
                value = float(match["value"])
            except ValueError:
                continue
            yield match["name"], dict(_LABEL.findall(match["labels"])), value


def parse_counters(text: str, model: str) -> Counters:
    """The speculation counters of the served name `model` on a /metrics page."""
    sums = {"drafts": 0.0, "drafted": 0.0, "accepted": 0.0}
    positions: dict[int, float] = {}
    for name, labels, value in samples(text):
        if labels.get("model_name") != model:
            continue
        for key in sums:
            if name == COUNTERS[key]:
                sums[key] += value
        if name == COUNTERS["by_position"] and labels.get("position", "").isdigit():
            position = int(labels["position"])
            positions[position] = positions.get(position, 0) + value
    return Counters(by_position=dict(sorted(positions.items())), **sums)


@dataclass
class Api:
    """An OpenAI-compatible server. base_url: without /v1; key: bearer token or ""; timeout_s: per answer."""

    base_url: str
    key: str
    timeout_s: float

    def _open(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base_url + path, data=data, headers=headers)
        try:
            return urllib.request.urlopen(request, timeout=self.timeout_s)
        except urllib.error.HTTPError as error:
            detail = error.read(2000).decode(errors="replace")
            raise ApiError(f"{path} answered {error.code}: {detail}") from error
        except (OSError, urllib.error.URLError) as error:
            raise ApiError(f"{path} did not answer within {self.timeout_s:g} s: {error}") from error

    def get_text(self, path: str) -> str:
        """The text of a page."""
        with self._open(path) as answer:
            return str(answer.read().decode(errors="replace"))

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._open(path, body) as answer:
            parsed: dict[str, Any] = json.loads(answer.read())
        return parsed

    def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """One chat completion, not streamed."""
        return self._post("/v1/chat/completions", body)

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """One text completion, not streamed."""
        return self._post("/v1/completions", body)

    def stream(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """One streamed completion: its text, its usage and the times of its first and last token (seconds)."""
        began = time.monotonic()
        first = last = None
        text: list[str] = []
        usage: dict[str, Any] = {}
        options = {"stream": True, "stream_options": {"include_usage": True}}
        try:
            with self._open("/v1/completions", {**body, **options}) as answer:
                for raw in answer:
                    line = raw.decode(errors="replace").strip()
                    if not line.startswith("data:") or line.endswith("[DONE]"):
                        continue
                    chunk = json.loads(line[5:])
                    usage = chunk.get("usage") or usage
                    for choice in chunk.get("choices", []):
                        if choice.get("text"):
                            last = time.monotonic()
                            first = first or last
                            text.append(choice["text"])
        except (OSError, ValueError) as error:
            raise ApiError(f"/v1/completions broke off after {len(text)} chunks: {error}") from error
        return {
            "text": "".join(text),
            "tokens": int(usage.get("completion_tokens", 0)),
            "first_s": (first - began) if first else None,
            "decode_s": (last - first) if first and last else None,
        }


def smoke(api: Api, model: str, expect: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the card's smoke prompt at temperature 0."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": expect["prompt"]}],
        "temperature": 0,
        "max_tokens": int(expect.get("max_tokens") or 64),
        "return_token_ids": True,
    }
    answer = api.chat(body)
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        return {
            "prompt": expect["prompt"],
            "answer": message.get("content") or "",
            "reasoning": message.get("reasoning") or message.get("reasoning_content") or "",
            "finish_reason": choice.get("finish_reason"),
            "token_ids": choice.get("token_ids") or [],
            "tokens": int(answer["usage"]["completion_tokens"]),
        }
    except (KeyError, IndexError, TypeError) as error:
        raise ApiError(f"/v1/chat/completions gave an answer without {error}: {str(answer)[:500]}") from error


def window(api: Api, model: str, prompt: str, tokens: int) -> dict[str, Any]:
    """Generate `tokens` tokens in one stream at temperature 0 and count what was drafted meanwhile.

    Returns counters of the window and `decode_tps`, (tokens - 1) / seconds from the first to the last token, tokens
    counted by the server's usage because one chunk carries several tokens under speculation.
    """
    before = parse_counters(api.get_text("/metrics"), model)
    body = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": tokens, "ignore_eos": True}
    made = api.stream(body)
    counts = parse_counters(api.get_text("/metrics"), model).since(before)
    rate = (made["tokens"] - 1) / made["decode_s"] if made["decode_s"] else None
    return {
        "tokens": made["tokens"],
        "first_token_s": made["first_s"],
        "decode_tps": rate,
        "drafted": int(counts.drafted),
        "accepted": int(counts.accepted),
        "acceptance": counts.acceptance,
        "mean_length": counts.mean_length,
        "by_position": [int(count) for count in counts.by_position.values()],
    }


def judge(
    host: str, target: str, draft: str, expect: Mapping[str, Any], asked: Mapping[str, Any], spun: Mapping[str, Any]
) -> tuple[list[Fault], list[Fault]]:
    """Errors and warnings of a smoke answer and a window against the card's expectations.

    draft: the draft's name, or "" where the card speculates without one or not at all.
    """
    errors: list[Fault] = []
    warnings: list[Fault] = []
    wanted = str(expect.get("answer") or "")
    if wanted and wanted.lower() not in asked["answer"].lower():
        errors.append(
            fault(
                host,
                f"answer of {target}",
                repr((asked["answer"] or asked["reasoning"])[:200]),
                f"an answer with {wanted!r} to {expect['prompt']!r}",
                "look at the server's log for numerical errors; try the card without its draft; verify the model files",
            )
        )
    least = expect.get("acceptance_min")
    if draft and least is not None:
        rate = spun["acceptance"]
        if not spun["drafted"]:
            errors.append(
                fault(host, f"draft {draft}", "not one token was drafted", "drafts", "is speculation on in the card?")
            )
        elif rate < float(least):
            errors.append(
                fault(
                    host,
                    f"draft {draft} on target {target}",
                    f"{spun['accepted']} of {spun['drafted']} drafted tokens accepted ({rate:.1%}), "
                    f"by position {spun['by_position']}",
                    f"at least {float(least):.0%}",
                    "this pairing does not fit: choose the draft made for this precision of the target, "
                    "and verify the draft's files",
                )
            )
    speed = expect.get("decode_tps_min")
    if speed and (spun["decode_tps"] or 0) < float(speed):
        warnings.append(
            fault(
                host,
                f"decode rate of {target}",
                f"{spun['decode_tps'] or 0:.1f} tokens/s",
                f"at least {float(speed):g} tokens/s",
                "run the acceptance again on an idle node; see playbooks/fabric_test.yml for the link",
            )
        )
    return errors, warnings
