# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Offer the wheels of one node to its peers over the fabric, for as long as they take them.

Plain HTTP on one address, read only, to the peers alone, under a path that is made up for the occasion. What arrives is
judged by the hashes of the lock, so nothing of this needs to be trusted. Nobody has to end it: without a request for a
while it ends by itself, so a play that was killed leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import threading
import time
import urllib.request
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TICK_S = 1.0


class OfferError(RuntimeError):
    """An offer that could not be made; the message says why."""


class Server(ThreadingHTTPServer):
    """A server that knows what it offers, to whom, and when it was last asked."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, port: int, folder: Path, peers: Sequence[str], token: str) -> None:
        """Bind to one address of the fabric."""
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.folder, self.peers, self.token = folder, frozenset(peers), token
        self.asked, self.busy, self.guard = time.monotonic(), 0, threading.Lock()
        super().__init__((address, port), Handler)

    def verify_request(self, request: object, client_address: object) -> bool:
        """Let the peers in and nobody else."""
        return isinstance(client_address, tuple) and client_address[0] in self.peers

    def end_when_idle(self, idle_s: float) -> None:
        """Stop once nobody has asked for a while."""
        while True:
            time.sleep(TICK_S)
            with self.guard:
                if not self.busy and time.monotonic() - self.asked > idle_s:
                    break
        self.shutdown()


class Handler(BaseHTTPRequestHandler):
    """Answers for files of the folder, whole or from an offset on."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""

    def do_DELETE(self) -> None:
        """End the offer; only who knows its path can ask for that."""
        if self.path.rstrip("/") != f"/{self.server.token}":
            self.send_error(404)
            return
        self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()
        threading.Thread(target=self.server.shutdown, daemon=True).start()

    def do_GET(self) -> None:
        """Send a file."""
        with self.server.guard:
            self.server.busy += 1
        try:
            self._send()
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            with self.server.guard:
                self.server.busy -= 1
                self.server.asked = time.monotonic()

    def _send(self) -> None:
        """Send a file of the folder; nothing that is not a plain name in it."""
        match = re.fullmatch(rf"/{self.server.token}/([A-Za-z0-9_.+-]+)", self.path.replace("%2B", "+"))
        path = self.server.folder / match[1] if match else None
        if path is None or not path.is_file():
            self.send_error(404)
            return
        size = path.stat().st_size
        ranged = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(ranged[1]) if ranged else 0
        if start >= size > 0:
            self.send_error(416)
            return
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(size - start))
        if ranged:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.end_headers()
        self.wfile.flush()
        with path.open("rb") as handle:
            self.connection.sendfile(handle, start)


def start(folder: Path, address: str, port: int, peers: Sequence[str], idle_s: float) -> str:
    """Begin an offer in a process of its own; returns the address under which the files are."""
    token = secrets.token_urlsafe(16)
    try:
        server = Server(address, port, folder, [*peers, address], token)
    except OSError as exc:
        raise OfferError(f"cannot listen on {address} port {port or 'any'}: {exc}") from exc
    bound = server.server_address[1]
    host = f"[{address}]" if ":" in address else address
    if os.fork():
        server.socket.close()
        return f"http://{host}:{bound}/{token}"
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        threading.Thread(target=server.end_when_idle, args=(idle_s,), daemon=True).start()
        server.serve_forever(TICK_S / 4)
    finally:
        os._exit(0)


def stop(url: str) -> bool:
    """End an offer; False where it has ended already."""
    with contextlib.suppress(OSError):
        request = urllib.request.Request(url, method="DELETE")
        # A proxy of the user's has no business on the fabric.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10):
            return True
    return False
