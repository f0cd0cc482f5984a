# SPDX-License-Identifier: GPL-3.0-or-later
"""One report names everything that is wrong, each thing once."""

from __future__ import annotations

from ansible_collections.dgx_spark.vllm.plugins.module_utils._report import fault, format_report


def test_nothing_to_say() -> None:
    assert format_report([], []) == ""


def test_every_part_of_a_fault_is_in_the_report() -> None:
    text = format_report([fault("spark-02", "GID index", "3", "5", "unpin it")])
    assert "1 error:" in text
    for part in ("[spark-02]", "GID index", "found:", "3", "expected:", "5", "cure:", "unpin it"):
        assert part in text


def test_errors_stand_before_warnings_and_repeats_are_dropped() -> None:
    first, second = fault("a", "x", "1", "2", "do"), fault("b", "y", "1", "2", "do")
    text = format_report([first, second, first], [second])
    assert text.index("2 errors:") < text.index("1 warning:")
    assert text.count("[a] x") == 1


def test_a_fault_of_no_single_host_says_so() -> None:
    assert "[all hosts]" in format_report([fault("", "kernel differs", "", "", "")])


def test_a_table_keeps_its_lines_aligned() -> None:
    text = format_report([fault("a", "x", "line one\nline two", "z", "c")])
    lines = [line for line in text.splitlines() if "line " in line]
    assert lines[0].index("line one") == lines[1].index("line two")
