# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The watchdog of the head: looks at the server every few seconds, and ends it when it only seems to serve."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from . import _node_evidence as evidence
from . import _node_history as history
from ._node_act import forget_failures, kill_main, state_of
from ._node_config import load, state_dir
from ._node_http import Api, parse_metrics
from ._node_start import SERVE
from ._node_wait import say
from ._watchdog import Limits, Pauses, Sample, Watch, progress_of, running_of


class Probe:
    """A completion of one token under way in a thread, so that one that never returns stops nothing else."""

    def __init__(self, api: Api, timeout_s: float) -> None:
        self.api, self.timeout_s = api, timeout_s
        self.started: float | None = None
        self.failed = ""
        self.seconds = 0.0

    def start(self, now: float) -> None:
        """Send one, unless one is under way."""
        if self.started is None:
            self.started = now
            threading.Thread(target=self._ask, args=(now,), daemon=True).start()

    def _ask(self, began: float) -> None:
        text = self.api.completion(1, self.timeout_s)
        # A refusal of the key or of the request is no fault of the engine.
        self.failed = text if text and not text.startswith("status 4") else ""
        self.seconds = time.monotonic() - began
        self.started = None


class Metrics:
    """The watchdog's own figures, for node_exporter's textfile collector."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "vllm_watchdog.prom"
        self.restarts = 0

    def write(self, serving: bool, still_s: float, probe_s: float, acted_at: float, failures: int) -> None:
        """All figures in one step."""
        rows = [
            ("vllm_watchdog_serving", "gauge", "1 while the server is ready.", float(serving)),
            ("vllm_watchdog_restarts_total", "counter", "Restarts that the watchdog caused.", float(self.restarts)),
            ("vllm_watchdog_last_restart_timestamp_seconds", "gauge", "When the last one was.", acted_at),
            ("vllm_watchdog_still_seconds", "gauge", "Time since the engine was last seen to work.", still_s),
            ("vllm_watchdog_probe_seconds", "gauge", "Time that the last probe took.", probe_s),
            (
                "vllm_watchdog_failures_in_a_row",
                "gauge",
                "Ends of the server since it was last ready.",
                float(failures),
            ),
        ]
        text = "".join(f"# HELP {n} {h}\n# TYPE {n} {t}\n{n} {v:.3f}\n" for n, t, h, v in rows)
        # A full disk must not keep the watchdog from its work.
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            history.write_text(self.path, text)
            self.path.chmod(0o644)


class Watchdog:
    """One loop over samples."""

    def __init__(self) -> None:
        self.node, self.serve = load("node"), load("serve")
        self.limits = Limits.of(self.serve["watchdog"])
        self.api = Api(self.serve)
        self.watch, self.pauses = Watch(self.limits), Pauses(self.limits)
        self.probe = Probe(self.api, self.limits.probe_s * 2)
        self.metrics = Metrics(Path(self.serve["metrics_dir"]))
        self.acted_at = 0.0
        self.stop = threading.Event()

    def sample(self, now: float) -> Sample:
        """Look once."""
        serving = state_of(self.node, SERVE).get("ActiveState") == "active"
        if not serving:
            self.probe.failed = ""
            return Sample(now, False)
        status, _unused = self.api.get("/health", self.limits.every_s)
        code, page = self.api.get("/metrics", self.limits.every_s)
        metrics = parse_metrics(page) if code == 200 else None
        age = None if self.probe.started is None else now - self.probe.started
        return Sample(
            now,
            True,
            healthy=status == 200,
            running=None if metrics is None else running_of(metrics),
            progress=None if metrics is None else progress_of(metrics),
            probe_age=age,
            probe_failed=self.probe.failed,
        )

    def once(self, now: float) -> None:
        """Look, decide, act, report."""
        sample = self.sample(now)
        why = self.watch.observe(sample)
        if why and self.pauses.allowed(now):
            self.act(now, why)
        elif why:
            say(f"{why}; the next restart may come in {self.pauses.next_at - now:.0f} s")
        elif self.watch.wants_probe(now):
            self.probe.start(now)
        if sample.serving and self.watch.stable(now):
            self.pauses.calm()
            forget_failures(self.node, SERVE)
        failures = history.failures_in_a_row(history.read(state_dir(self.node)), SERVE)
        self.metrics.write(
            sample.serving,
            now - self.watch.moved_at,
            self.probe.seconds,
            self.acted_at,
            0 if sample.serving else failures,
        )

    def act(self, now: float, why: str) -> None:
        """Evidence first, then one restart."""
        say(f"ending the server: {why}")
        try:
            folder = evidence.save(self.node, "watchdog", why, evidence.of_the_head(self.node))
            say(f"evidence is in {folder}")
        except OSError as err:
            say(f"no evidence could be kept: {err}")
        kill_main(self.node, SERVE)
        self.metrics.restarts += 1
        self.acted_at = time.time()
        self.pauses.acted(now)
        self.watch.reset()

    def run(self) -> None:
        """Until stopped."""

        def leave(_unused: int, __: FrameType | None) -> None:
            self.stop.set()

        signal.signal(signal.SIGTERM, leave)
        while not self.stop.wait(self.limits.every_s):
            self.once(time.monotonic())


def main(*_: Any) -> None:
    """The verb `watchdog`."""
    Watchdog().run()
