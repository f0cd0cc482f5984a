"""Evidence is kept within its bounds; the history survives a power cut in the middle of a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _node_evidence as evidence
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _node_history as history

SERVE = "vllm-serve.service"


def test_an_event_has_its_folder_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node: dict[str, Any] = {"root": str(tmp_path)}
    for number in range(evidence.KEEP_EVENTS + 3):
        monkeypatch.setattr("time.strftime", lambda *_, n=number: f"2026{n:04d}")
        folder = evidence.save(node, "watchdog", "frozen", {"a.log": "x"})
    kept = sorted(path.name for path in (tmp_path / "state/events").iterdir())
    assert len(kept) == evidence.KEEP_EVENTS
    assert kept[-1] == folder.name
    assert (folder / "why.txt").read_text() == "frozen\n"
    assert history.last_of(history.read(tmp_path / "state"), SERVE, "watchdog")["folder"] == str(folder)


def test_an_event_keeps_the_ends_within_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "EVENT_BYTES", 100)
    folder = evidence.save({"root": str(tmp_path)}, "guard", "w", {"a": "x" * 90 + "END", "b": "y" * 50})
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 100
    assert (folder / "a").read_text().endswith("END")


def test_a_program_that_is_missing_or_hangs_is_a_line() -> None:
    assert "not installed" in evidence._run(["/no/such/program"])
    assert "timed out" in evidence._run(["/bin/sleep", "5"], timeout_s=0.2)


def test_history_is_bounded_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    for number in range(2 * history.KEEP + 5):
        history.append(tmp_path, {"unit": SERVE, "what": "start", "n": number})
    assert len((tmp_path / history.NAME).read_text().splitlines()) < 2 * history.KEEP
    with (tmp_path / history.NAME).open("a") as file:
        file.write('{"unit": "vllm-se')
    assert history.read(tmp_path, 3)[-1]["n"] == 2 * history.KEEP + 4


def test_failures_in_a_row_end_with_readiness(tmp_path: Path) -> None:
    for what in ("stopped", "ready", "stopped", "start", "stopped"):
        history.append(tmp_path, {"unit": SERVE, "what": what})
    history.append(tmp_path, {"unit": "vllm-ray-head.service", "what": "stopped"})
    assert history.failures_in_a_row(history.read(tmp_path), SERVE) == 2


def test_a_table_that_is_torn_counts_as_absent(tmp_path: Path) -> None:
    history.write_json(tmp_path / "a", {"b": 1})
    assert history.read_json(tmp_path / "a") == {"b": 1}
    (tmp_path / "a").write_text("{")
    assert history.read_json(tmp_path / "a") == {}
