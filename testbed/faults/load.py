"""A stream of small requests that runs through everything, and what became of each of them."""

from __future__ import annotations

import http.client
import json
import socket
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


class _Connection(http.client.HTTPConnection):
    """Asks now and then whether the peer still lives: a machine without power says nothing by itself."""

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4)):
            self.sock.setsockopt(socket.IPPROTO_TCP, option, value)


class _KeptAlive(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


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
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _KeptAlive())

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
        except TimeoutError as err:
            # The kernel's own word for a peer that answers no more is an error like others; our own clock's is not.
            return Outcome(began, time.time(), False, str(err) if err.errno else "hung")
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
