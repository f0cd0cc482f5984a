"""The line that tells why a unit ended, out of what engines really print."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _node_history as history
from ansible_collections.dgx_spark.vllm.plugins.module_utils._node_reason import ELSEWHERE, plain, reason

MISSING_DRAFT = [
    "(APIServer pid=874) INFO 11-30 16:03:01 [api_server.py:10] vLLM API server version 0.25.1",
    "(EngineCore pid=924) ERROR 11-30 16:03:54 [core.py:1100] ValueError: draft_vocab_size 8 is not 64",
    "(APIServer pid=874) RuntimeError: Engine core initialization failed. See root cause above.",
]


@pytest.mark.parametrize(
    ("lines", "result", "expected"),
    [
        ([*MISSING_DRAFT, f"vllm-node after: it ended; {ELSEWHERE}"], ("success", "exited", "1"),
         "ValueError: draft_vocab_size 8 is not 64"),
        (["vllm: error: unrecognized arguments: --no-such"], ("exit-code", "exited", "2"),
         "vllm: error: unrecognized arguments: --no-such"),
        (["vllm-node before: the nodes of Ray did not come within 600 s: 1.0/2 devices"], ("exit-code", "exited", "1"),
         "the nodes of Ray did not come within 600 s: 1.0/2 devices"),
        (["fabric-env: 192.168.100.1 on enp1s0f1np1, rocep1s0f1, GID index 3 (3)"], ("signal", "killed", "KILL"),
         "it ended by signal KILL"),
        (["fabric-env: error: rocep1s0f1: port DOWN"], ("exit-code", "exited", "22"), "rocep1s0f1: port DOWN"),
        (["ValueError: early"], ("oom-kill", "killed", "KILL"),
         "the kernel ended it for lack of memory (oom-kill); see MemoryMax of the unit and the card's caps"),
        (["INFO [shutdown] API server: shutdown triggered"], ("success", "exited", "0"), "it was asked to stop"),
        (["vllm.v1.engine.exceptions.EngineDeadError: dead"], ("success", "exited", "0"),
         "a process of the engine ended without a word of its own; what noticed it says: "
         "vllm.v1.engine.exceptions.EngineDeadError: dead"),
        (["ERROR scripts.py:1 -- Some Ray subprocesses exited unexpectedly:",
          "2026-11-30 16:48:46,758\tERR scripts.py:86 -- raylet [exit code=-9]"],
         ("success", "exited", "1"), "a process of Ray ended: raylet [exit code=-9]"),
        (["INFO scripts.py -- started"], ("success", "exited", "1"), "it was asked to stop"),
        (["torch.OutOfMemoryError: CUDA out of memory."], ("success", "exited", "0"),
         "torch.OutOfMemoryError: CUDA out of memory."),
        (["(APIServer pid=5) pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig",
          "(APIServer pid=5)   Value error, Unrecognized model in /models/draft. [type=value_error, input_value=A()]",
          "(APIServer pid=5)     For further information visit https://errors.pydantic.dev/2.13/v/value_error"],
         ("exit-code", "exited", "1"),
         "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig: "
         "Value error, Unrecognized model in /models/draft."),
        (["ValidationError: 2 validation errors for CacheConfig", "block_size",
          "  Input should be a valid integer [type=int_type, input_value='x']", "swap"], ("exit-code", "exited", "1"),
         "ValidationError: 2 validation errors for CacheConfig: block_size: Input should be a valid integer"),
        ([], ("timeout", "killed", "KILL"), "it did not follow within its time (timeout)"),
        ([], ("", "", ""), "its end is not known"),
    ],
)  # fmt: skip
def test_reason(lines: list[str], result: tuple[str, str, str], expected: str) -> None:
    assert reason(lines, *result) == expected


def test_prefixes_of_ray_and_colours_are_taken_off() -> None:
    line = "\x1b[36m(EngineCore pid=9)\x1b[0m (RayWorkerProc pid=716, ip=192.168.180.2) KeyError: 'layers.0'"
    assert plain(line) == "KeyError: 'layers.0'"


def test_a_full_disk_keeps_no_unit_from_starting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / history.NAME).symlink_to("/dev/full")
    history.append(tmp_path, {"unit": "u", "what": "start"})
    assert "history.jsonl: No space left on device; the status will not show this event" in capsys.readouterr().out
    (tmp_path / "gone").mkdir()
    history.write_json(tmp_path / "gone" / "not" / history.HALTED, {})
    assert "the status will not show this" in capsys.readouterr().out
