"""Puts one fault on a serving cluster and says what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .catalog import Fault
from .load import Load
from .nodes import Cluster, FaultError, wait_for

# What the issue of the house allows beyond the load itself and the time until the fault can be known.
GRACE_S = 10.0
SETTLE_S = 3.0


@dataclass(frozen=True)
class Result:
    """What came of a fault. Seconds count from the moment the fault ended."""

    fault: Fault
    back_s: float
    allowed_s: float
    restarts: int
    answered: int
    refused: int
    hung: int


def base_load(cluster: Cluster) -> float:
    """How long a start of the server takes here, from its beginning to the completion: the longest of the last 3."""
    spans: list[float] = []
    began = 0.0
    for event in cluster.head.history():
        if event["unit"] == "vllm-serve.service" and event["what"] == "start":
            began = float(event["time"])
        elif event["unit"] == "vllm-serve.service" and event["what"] == "ready" and began:
            spans.append(float(event["time"]) - began)
    if not spans:
        raise FaultError("the server was never ready")
    return max(spans[-3:])


def settled(cluster: Cluster, load: Load, since: float) -> str:
    """Empty where the cluster serves again, from one engine."""
    again = load.served_again(since)
    if not again:
        last = load.outcomes[-1].text if load.outcomes else "no request ended yet"
        return f"no request was answered; the last: {last}; the unit is {cluster.state() or 'not reachable'}"
    if (state := cluster.state()) != "active":
        return f"the unit is {state or 'not reachable'}"
    return ""


def watch(cluster: Cluster, load: Load, fault: Fault, base_s: float) -> Result:
    """Put the fault on, take it off, wait until it is served again, and count."""
    began = time.time()
    fault.put_on(cluster)
    time.sleep(fault.lasts_s)
    fault.take_off(cluster)
    ended = time.time()
    allowed = base_s + GRACE_S + fault.notice_s if fault.restarts[1] else GRACE_S + fault.notice_s
    # A fault that must cost a restart counts as noticed once a request failed; before that an answer proves nothing.
    since = ended
    if fault.restarts[0]:
        wait_for(
            lambda: "" if load.first_lost(began) else "all requests are answered", allowed, f"{fault.name} noticed"
        )
        since = max(ended, load.first_lost(began))
    # Twice the time allowed: a late answer gets a figure in the table and fails on it.
    wait_for(lambda: settled(cluster, load, since), 2 * allowed, f"{fault.title}: serving again")
    back = load.served_again(since) - ended
    time.sleep(SETTLE_S)
    outcomes = load.since(began)
    return Result(
        fault,
        max(0.0, back),
        allowed,
        cluster.starts(began),
        sum(o.answered for o in outcomes),
        sum(not o.answered and o.text != "hung" for o in outcomes),
        sum(o.text == "hung" for o in outcomes),
    )


def complaints(result: Result, cluster: Cluster) -> list[str]:
    """What is not as it has to be."""
    found = list(filter(None, [result.fault.proof(cluster)]))
    least, most = result.fault.restarts
    if not least <= result.restarts <= most:
        found.append(f"{result.restarts} restart(s), expected {least}" + (f" to {most}" if most != least else ""))
    if result.back_s > result.allowed_s:
        found.append(f"serving again after {result.back_s:.0f} s, allowed are {result.allowed_s:.0f} s")
    if result.fault.lossless and result.refused:
        found.append(f"{result.refused} request(s) were refused, none may be")
    if result.hung:
        found.append(f"{result.hung} request(s) got neither an answer nor an error")
    found += [f"{count} {what}" for what, count in cluster.engines().items() if count != 1]
    return found
