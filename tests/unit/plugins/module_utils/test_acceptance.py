# SPDX-License-Identifier: GPL-3.0-or-later
"""What a served model is judged by, against a real HTTP server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _acceptance as acceptance

PAGE = """# HELP vllm:spec_decode_num_drafts_total Number of drafts
vllm:spec_decode_num_drafts_total{{engine="0",model_name="tiny"}} {drafts}
vllm:spec_decode_num_draft_tokens_total{{model_name="tiny",engine="0"}} {drafted}
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="tiny"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="tiny",position="1"}} {second}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="0",engine="0",model_name="tiny"}} {first}
vllm:spec_decode_num_accepted_tokens_created{{engine="0",model_name="tiny"}} 1.7e+09
vllm:spec_decode_num_drafts_total{{engine="0",model_name="other"}} 999
process_open_fds 12
"""


class Server(BaseHTTPRequestHandler):
    """A server whose counters rise with each stream, at the rate a test sets."""

    counts: ClassVar[dict[str, int]] = {}
    accept: ClassVar[int] = 6
    answer: ClassVar[str] = "Paris"
    keys: ClassVar[list[str]] = []

    def log_message(self, *args: Any) -> None:
        """Keep the test's output clean."""

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """The metrics page."""
        self._send(PAGE.format(**self.counts).encode())

    def do_POST(self) -> None:
        """A chat completion, or a stream of three chunks with twenty tokens."""
        self.keys.append(self.headers.get("Authorization", ""))
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/chat/completions"):
            choice = {"message": {"content": self.answer}, "finish_reason": "stop", "token_ids": [80]}
            self._send(json.dumps({"choices": [choice], "usage": {"completion_tokens": 6}}).encode())
            return
        for key, step in (("drafts", 10), ("drafted", 60), ("accepted", 10 * self.accept), ("first", 9), ("second", 5)):
            self.counts[key] += step
        chunks = [{"choices": [{"text": "abc"}]}] * 3 + [{"choices": [], "usage": {"completion_tokens": 20}}]
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        self._send("".join([*lines, "data: [DONE]\n\n"]).encode())


@pytest.fixture
def api() -> Iterator[acceptance.Api]:
    Server.counts = {"drafts": 100, "drafted": 600, "accepted": 300, "first": 90, "second": 50}
    Server.accept, Server.answer, Server.keys = 6, "Paris", []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield acceptance.Api(f"http://127.0.0.1:{server.server_port}", "k-1", 5)
    server.shutdown()
    server.server_close()


EXPECT = {"prompt": "capital of France?", "answer": "Paris", "acceptance_min": 0.9}


def run(api: acceptance.Api, expect: dict[str, Any]) -> tuple[list[Any], list[Any], dict[str, Any]]:
    asked = acceptance.smoke(api, "tiny", expect)
    spun = acceptance.window(api, "tiny", "p", 20)
    errors, warnings = acceptance.judge("spark-01", "T", "D", expect, asked, spun)
    return errors, warnings, spun


def test_counters_are_taken_by_label_in_any_order_and_of_one_model() -> None:
    found = acceptance.parse_counters(PAGE.format(drafts=1, drafted=2, accepted=3, first=4, second=5), "tiny")
    assert (found.drafts, found.drafted, found.accepted) == (1, 2, 3)
    assert found.by_position == {0: 4, 1: 5}
    assert acceptance.parse_counters(PAGE.format(drafts=1, drafted=2, accepted=3, first=4, second=5), "x").drafts == 0


def test_a_true_answer_and_an_accepted_draft_pass(api: acceptance.Api) -> None:
    errors, warnings, spun = run(api, EXPECT)
    assert errors == []
    assert warnings == []
    assert (spun["drafted"], spun["accepted"], spun["tokens"]) == (60, 60, 20)
    assert spun["by_position"] == [9, 5]
    assert spun["mean_length"] == 7
    assert set(Server.keys) == {"Bearer k-1"}


def test_a_draft_that_is_never_right_names_the_pairing(api: acceptance.Api) -> None:
    Server.accept = 0
    errors, _warnings, _spun = run(api, EXPECT)
    assert [fault["subject"] for fault in errors] == ["draft D on target T"]
    assert "0 of 60" in errors[0]["found"]
    assert "pairing" in errors[0]["cure"]


def test_a_wrong_answer_and_a_slow_decode_are_both_reported(api: acceptance.Api) -> None:
    Server.answer = "!!!!"
    errors, warnings, _spun = run(api, {**EXPECT, "decode_tps_min": 1e9})
    assert "'!!!!'" in errors[0]["found"]
    assert "tokens/s" in warnings[0]["found"]


def test_speculation_that_is_off_is_not_called_accepted(api: acceptance.Api) -> None:
    asked = acceptance.smoke(api, "tiny", EXPECT)
    spun = {"drafted": 0, "accepted": 0, "acceptance": None, "by_position": [], "decode_tps": 1.0}
    errors, _warnings = acceptance.judge("h", "T", "D", EXPECT, asked, spun)
    assert "not one token was drafted" in errors[0]["found"]


def test_a_server_that_is_not_there_is_an_error_of_ours() -> None:
    with pytest.raises(acceptance.ApiError, match="did not answer"):
        acceptance.Api("http://127.0.0.1:9", "", 1).get_text("/metrics")
