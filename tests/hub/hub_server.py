# SPDX-License-Identifier: GPL-3.0-or-later
"""A small server that speaks the model hub's protocol: metadata, redirects to a store, ranges, and its bad days."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

REPO = "owner/model"
LARGE = 1 << 16


def commit_of(files: dict[str, bytes]) -> str:
    return hashlib.sha1(repr(sorted((k, hashlib.sha256(v).hexdigest()) for k, v in files.items())).encode()).hexdigest()


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Hub:
    """What the server has and what it did."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    main: str = ""
    token: str = ""
    # Called before each answer with the kind (api, head, file, store) and the path; an int is an HTTP status to fail
    # with, a negative one cuts the connection after so many bytes.
    fault: Callable[[str, str], int] = lambda _kind, _path: 0
    sent: Counter[str] = field(default_factory=Counter)
    asked: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    tokens: set[str] = field(default_factory=set)
    url: str = ""
    # Large files are redirected to another host, as the real hub does.
    store: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def publish(self, files: dict[str, bytes]) -> str:
        """A new commit on the main branch."""
        self.main = commit_of(files)
        self.commits[self.main] = files
        return self.main


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(head=True)

    def do_GET(self) -> None:
        self._answer(head=False)

    def _answer(self, head: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        kind = "api" if path.startswith("/api/") else "store" if path.startswith("/store/") else "file"
        with self.hub.lock:
            self.hub.asked["head" if head else kind].append(path)
            self.hub.tokens.add(self.headers.get("Authorization", ""))
            fault = self.hub.fault("head" if head else kind, path)
        if fault > 0:
            self._send(fault, {"Retry-After": "0"} if fault == 429 else {}, b"", head)
        elif self.hub.token and kind != "store" and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._send(401, {"X-Error-Message": "Invalid credentials"}, b"", head)
        elif kind == "api":
            self._api(path, head)
        elif kind == "store":
            self._store(path.rpartition("/")[2], head, fault)
        else:
            self._file(path, head, fault)

    def _send(self, status: int, headers: dict[str, str], body: bytes, head: bool, cut: int = 0) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not head:
            self.wfile.write(body[:-cut] if cut < 0 else body)

    def _commit(self, revision: str) -> str:
        return self.hub.main if revision == "main" else revision

    def _api(self, path: str, head: bool) -> None:
        match = re.fullmatch(rf"/api/models/{REPO}(?:/revision/(.+))?", path)
        commit = self._commit(match[1] or "main") if match else ""
        if commit not in self.hub.commits:
            code = "RevisionNotFound" if match else "RepoNotFound"
            self._send(404, {"X-Error-Code": code}, b"{}", head)
            return
        siblings = []
        for name, data in self.hub.commits[commit].items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": blob_id(data)}
            if len(data) >= LARGE:
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            siblings.append(entry)
        body = json.dumps({"id": REPO, "modelId": REPO, "sha": commit, "siblings": siblings}).encode()
        self._send(200, {"Content-Type": "application/json"}, body, head)

    def _file(self, path: str, head: bool, fault: int) -> None:
        match = re.fullmatch(rf"/{REPO}/resolve/([^/]+)/(.+)", path)
        commit = self._commit(match[1]) if match else ""
        data = self.hub.commits.get(commit, {}).get(match[2] if match else "")
        if data is None:
            self._send(404, {"X-Error-Code": "EntryNotFound"}, b"", head)
            return
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if len(data) >= LARGE:
            sha = hashlib.sha256(data).hexdigest()
            headers |= {"X-Linked-Etag": f'"{sha}"', "X-Linked-Size": str(len(data)), "ETag": f'"{blob_id(data)}"'}
            self._send(302, headers | {"Location": f"{self.hub.store}/store/{sha}"}, b"", head)
        else:
            self._body(match[2] if match else "", data, headers | {"ETag": f'"{blob_id(data)}"'}, head, fault)

    def _store(self, sha: str, head: bool, fault: int) -> None:
        for files in self.hub.commits.values():
            for name, data in files.items():
                if hashlib.sha256(data).hexdigest() == sha:
                    self._body(name, data, {"ETag": f'"{sha}"', "Accept-Ranges": "bytes"}, head, fault)
                    return
        self._send(404, {}, b"", head)

    def _body(self, name: str, data: bytes, headers: dict[str, str], head: bool, fault: int) -> None:
        begin, status = 0, 200
        if (asked := self.headers.get("Range")) and (match := re.fullmatch(r"bytes=(\d+)-(\d*)", asked)):
            begin, status = int(match[1]), 206
            headers |= {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}
        body = data[begin:]
        if fault < 0 and not head:
            # Announce all of it, send some of it, and go away.
            part = body[: min(-fault, max(len(body) - 1, 0))]
            self._send(status, headers | {"Content-Length": str(len(body))}, part, head)
            self.wfile.flush()
            with self.hub.lock:
                self.hub.sent[name] += len(part)
            self.close_connection = True
            self.connection.close()
            return
        with self.hub.lock:
            self.hub.sent[name] += 0 if head else len(body)
        self._send(status, headers, body, head)


@contextmanager
def serving() -> Iterator[Hub]:
    """The server on a free port of loopback."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    servers = [ThreadingHTTPServer((address, 0), handler) for address in ("127.0.0.1", "127.0.0.2")]
    hub.url, hub.store = (f"http://127.0.0.{n}:{s.server_address[1]}" for n, s in enumerate(servers, start=1))
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for server, thread in zip(servers, threads, strict=True):
        server.daemon_threads = True
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()
