"""Faults put on a serving bed under a stream of requests, and what came of them."""
