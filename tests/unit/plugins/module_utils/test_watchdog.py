"""The watchdog acts on what only seems to serve, and never on a load, a long prefill or an idle server (C83)."""

from __future__ import annotations

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._guard import Guard
from ansible_collections.dgx_spark.vllm.plugins.module_utils._watchdog import (
    Limits,
    Pauses,
    Sample,
    Watch,
    progress_of,
    running_of,
)
from hypothesis import given
from hypothesis import strategies as st

LIMITS = Limits(stall_s=60, probe_every_s=30, probe_s=40, health_s=20, pause_s=10, pause_max_s=35, stable_s=100)
EVERY = 5.0


def run(samples: list[Sample], watch: Watch | None = None) -> tuple[str, float]:
    """The first reason, and when it came."""
    watch = watch or Watch(LIMITS)
    for sample in samples:
        if why := watch.observe(sample):
            return why, sample.now
    return "", 0.0


def span(seconds: float, **fields: object) -> list[Sample]:
    return [Sample(now=1000 + n * EVERY, serving=True, **fields) for n in range(int(seconds / EVERY))]  # type: ignore[arg-type]


def test_frozen_tokens_with_requests_running() -> None:
    why, when = run(span(200, running=1.0, progress=(7.0,)))
    assert "no token" in why
    assert when == 1060


def test_an_idle_server_is_left_alone() -> None:
    assert run(span(2000, running=0.0, progress=(7.0,)))[0] == ""


def test_a_load_is_left_alone() -> None:
    assert run([Sample(n, serving=False, healthy=False, running=1.0) for n in range(0, 5000, 5)])[0] == ""


def test_a_long_prefill_that_fills_the_cache_is_left_alone() -> None:
    samples = [
        Sample(n * EVERY, True, running=1.0, progress=progress_of({"vllm:kv_cache_usage_perc": n / 1000}))
        for n in range(500)
    ]
    assert run(samples)[0] == ""


def test_requests_that_come_to_a_long_idle_server_have_their_full_time() -> None:
    idle = span(500, running=0.0, progress=(7.0,))
    busy = [Sample(1500 + n * EVERY, True, running=1.0, progress=(7.0,)) for n in range(30)]
    why, when = run(idle + busy)
    assert "no token" in why
    assert when == 1560


def test_a_probe_that_does_not_come_back() -> None:
    samples = [Sample(n * EVERY, True, running=None, probe_age=max(0.0, n * EVERY - 30)) for n in range(60)]
    why, when = run(samples)
    assert "has not come back" in why
    assert when == 70


def test_a_probe_that_waits_behind_others_is_left_alone() -> None:
    samples = [Sample(n * EVERY, True, running=3.0, progress=(float(n),), probe_age=n * EVERY) for n in range(500)]
    assert run(samples)[0] == ""


def test_a_probe_that_fails_again_and_again() -> None:
    why, when = run(span(200, running=0.0, progress=(1.0,), probe_failed="status 500: no"))
    assert "status 500" in why
    assert when == 1040


def test_bad_health_over_its_time_and_not_before() -> None:
    assert run(span(20, healthy=False))[0] == ""
    why, when = run(span(60, healthy=False))
    assert "/health" in why
    assert when == 1020


def test_one_good_look_starts_the_time_anew() -> None:
    samples = span(200, healthy=False)
    mended = [s if n % 3 else Sample(s.now, True) for n, s in enumerate(samples)]
    assert run(mended)[0] == ""


def test_the_probe_is_wanted_only_when_nothing_moved() -> None:
    watch = Watch(LIMITS)
    watch.observe(Sample(0, True, running=0.0, progress=(1.0,)))
    assert not watch.wants_probe(29)
    assert watch.wants_probe(30)
    watch.observe(Sample(30, True, running=1.0, progress=(2.0,)))
    assert not watch.wants_probe(35)
    watch.observe(Sample(40, False))
    assert not watch.wants_probe(500)


def test_pauses_grow_to_their_end_and_shrink_after_calm() -> None:
    pauses = Pauses(LIMITS)
    waits = []
    now = 0.0
    for _ in range(4):
        assert pauses.allowed(now)
        pauses.acted(now)
        waits.append(pauses.next_at - now)
        assert not pauses.allowed(now + waits[-1] - 1)
        now = pauses.next_at
    assert waits == [10, 20, 35, 35]
    pauses.calm()
    pauses.acted(now)
    assert pauses.next_at - now == 10


def test_unknown_limits_are_named() -> None:
    with pytest.raises(ValueError, match="stal_s"):
        Limits.of({"stal_s": 3})
    assert Limits.of({"stall_s": "3"}).stall_s == 3


def test_waiting_requests_count_as_running() -> None:
    assert running_of({"vllm:num_requests_running": 1, "vllm:num_requests_waiting": 2}) == 3


@given(st.lists(st.integers(min_value=0, max_value=20), max_size=60))
def test_the_guard_acts_only_after_its_time_below_the_floor(levels: list[int]) -> None:
    guard = Guard(floor=10, seconds=3)
    below = 0
    for now, level in enumerate(levels):
        acted = guard.observe(float(now), level)
        below = below + 1 if level < 10 else 0
        assert acted == (below == 4)
        if acted:
            below = 0
