"""A stream of small requests that runs through everything, and what became of each of them."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field

# Longer than any fault lets a request hang on purpose: one that is still open then counts as lost.
REQUEST_S = 170.0
PAUSE_S = 0.3


@dataclass(frozen=True)
class Outcome:
    """One request. Times are of the wall clock, which nodes and driver share."""

    began: float
    ended: float
    answered: bool
    text: str


@dataclass
class Load:
    """Requests one after the other in each of a few threads."""

    url: str
    key: str
    model: str
    threads: int = 2
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._workers = [threading.Thread(target=self._run, daemon=True) for _ in range(self.threads)]
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def start(self) -> Load:
        """Begin."""
        for worker in self._workers:
            worker.start()
        return self

    def stop(self) -> None:
        """Send no more, and wait for those under way."""
        self._stop.set()
        for worker in self._workers:
            worker.join(REQUEST_S)

    def once(self, tokens: int = 24) -> Outcome:
        """One request, to its answer of so many tokens or its error."""
        body = {"model": self.model, "prompt": "What is the capital of France?", "max_tokens": tokens, "temperature": 0}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps({**body, "ignore_eos": True}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"},
        )
        began = time.time()
        try:
            with self._opener.open(request, timeout=REQUEST_S) as answer:
                got = json.load(answer)["usage"]["completion_tokens"]
            return Outcome(began, time.time(), got == tokens, f"{got} tokens")
        except urllib.error.HTTPError as err:
            return Outcome(began, time.time(), False, f"status {err.code}")
        except TimeoutError:
            return Outcome(began, time.time(), False, "hung")
        except (OSError, ValueError, KeyError) as err:
            return Outcome(began, time.time(), False, str(getattr(err, "reason", err)) or type(err).__name__)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.outcomes.append(self.once())
            self._stop.wait(PAUSE_S)

    def since(self, when: float) -> list[Outcome]:
        """Requests that ended after a time."""
        return [outcome for outcome in list(self.outcomes) if outcome.ended >= when]

    def served_again(self, when: float) -> float:
        """When the first request was answered that began after that time, 0 where none was yet."""
        return min((o.ended for o in list(self.outcomes) if o.answered and o.began >= when), default=0.0)

    def first_lost(self, when: float) -> float:
        """When the first request failed after that time, 0 where none did."""
        return min((o.ended for o in list(self.outcomes) if not o.answered and o.ended >= when), default=0.0)
