# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""When a server that runs must be ended: pure decisions over samples, with no clock and no network of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """Times in seconds."""

    every_s: float = 5.0
    stall_s: float = 180.0
    probe_every_s: float = 60.0
    probe_s: float = 120.0
    health_s: float = 60.0
    pause_s: float = 60.0
    pause_max_s: float = 3600.0
    stable_s: float = 600.0

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Limits:
        """The limits with those values that are given."""
        known = set(cls.__dataclass_fields__)
        if unknown := sorted(set(values) - known):
            raise ValueError(
                f"unknown limit {', '.join(unknown)} of the watchdog; known are {', '.join(sorted(known))}"
            )
        return cls(**{name: float(str(value)) for name, value in values.items()})


@dataclass(frozen=True)
class Sample:
    """What was seen at one time."""

    now: float
    serving: bool
    healthy: bool = True
    # None where the counters could not be read.
    running: float | None = None
    progress: tuple[float, ...] | None = None
    # Seconds since a one-token probe was sent that has not come back, None where none is under way.
    probe_age: float | None = None
    probe_failed: str = ""


PROGRESS = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    # The prompt counter moves at the end of a prefill only; while one goes on, its blocks fill the cache.
    "vllm:kv_cache_usage_perc",
    "vllm:request_success_total",
    "vllm:spec_decode_num_drafts_total",
)
RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")


def progress_of(metrics: Mapping[str, float]) -> tuple[float, ...]:
    """The figures of which at least one moves while the engine works."""
    return tuple(metrics.get(name, 0.0) for name in PROGRESS)


def running_of(metrics: Mapping[str, float]) -> float:
    """Requests that the engine has, running or waiting."""
    return sum(metrics.get(name, 0.0) for name in RUNNING)


@dataclass
class Watch:
    """Remembers since when what has been wrong."""

    limits: Limits
    progress: tuple[float, ...] | None = None
    # When the engine was last seen to work, and since when it has had requests.
    moved_at: float = 0.0
    busy_at: float | None = None
    unhealthy_at: float | None = None
    serving_at: float | None = None
    probe_failed_at: float | None = None

    def reset(self) -> None:
        """Nothing is known: the server is not serving."""
        self.progress, self.busy_at, self.unhealthy_at = None, None, None
        self.serving_at, self.probe_failed_at = None, None

    def observe(self, sample: Sample) -> str:
        """The reason to act now, or an empty text."""
        if not sample.serving:
            # A load, or a restart that is under way already: systemd's own limits hold there.
            self.reset()
            return ""
        self._remember(sample)
        now, limits = sample.now, self.limits
        still = now - max(self.moved_at, self.busy_at or 0.0)
        if self.busy_at is not None and still >= limits.stall_s:
            return (
                f"no token and no block of the cache for {still:.0f} s, while {sample.running or 0:.0f} request(s) wait"
            )
        if sample.probe_age is not None and min(sample.probe_age, now - self.moved_at) >= limits.probe_s:
            return f"a completion of one token has not come back for {sample.probe_age:.0f} s"
        if self.probe_failed_at is not None and now - self.probe_failed_at >= limits.probe_s:
            return f"completions of one token fail for {now - self.probe_failed_at:.0f} s: {sample.probe_failed}"
        if self.unhealthy_at is not None and now - self.unhealthy_at >= limits.health_s:
            return f"/health is bad for {now - self.unhealthy_at:.0f} s"
        return ""

    def _remember(self, sample: Sample) -> None:
        now = sample.now
        if self.serving_at is None:
            self.serving_at, self.moved_at = now, now
        if sample.progress is not None and sample.progress != self.progress:
            self.progress, self.moved_at = sample.progress, now
        if sample.running is not None:
            self.busy_at = None if sample.running == 0 else now if self.busy_at is None else self.busy_at
        self.unhealthy_at = None if sample.healthy else now if self.unhealthy_at is None else self.unhealthy_at
        failed_at = now if self.probe_failed_at is None else self.probe_failed_at
        self.probe_failed_at = failed_at if sample.probe_failed else None

    def wants_probe(self, now: float) -> bool:
        """Whether nothing has moved for so long that only a request of our own can tell."""
        return self.serving_at is not None and now - self.moved_at >= self.limits.probe_every_s

    def stable(self, now: float) -> bool:
        """Whether the server has served so long that earlier failures no longer count."""
        return self.serving_at is not None and now - self.serving_at >= self.limits.stable_s


@dataclass
class Pauses:
    """At least so long between two restarts, doubled each time, and short again after a stable time."""

    limits: Limits
    next_at: float = field(default=0.0)
    pause: float = field(default=0.0)

    def allowed(self, now: float) -> bool:
        """Whether a restart may come now."""
        return now >= self.next_at

    def acted(self, now: float) -> None:
        """A restart came now."""
        self.pause = min(self.limits.pause_max_s, self.pause * 2 if self.pause else self.limits.pause_s)
        self.next_at = now + self.pause

    def calm(self) -> None:
        """The server is stable."""
        self.pause = 0.0
