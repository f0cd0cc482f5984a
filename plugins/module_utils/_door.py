# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The door of the API, inside the server: every path needs a key, but for those that the inventory opened.

vLLM's own check guards /v1 alone, and its keys come by argument or environment, where others can read them, and change
only with a restart. This one is loaded by `vllm serve --middleware`, guards everything, and reads the keys from a file
of mode 0600 whenever it changed: a key is added or taken away without the loss of a request.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import os
import pwd
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

FOLDER = ".config/dgx-spark-vllm"


class Watched:
    """A file that is read again when it is another one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._text = ""

    def text(self) -> str:
        """Its content, empty where it cannot be read."""
        try:
            info = self.path.stat()
            seen = (info.st_mtime_ns, info.st_size, info.st_ino)
            if seen != self._seen:
                self._text, self._seen = self.path.read_text(encoding="utf-8"), seen
        except OSError:
            self._text, self._seen = "", None
        return self._text


def keys_of(text: str) -> list[bytes]:
    """The keys of the file, one to a line."""
    return [line.strip().encode() for line in text.splitlines() if line.strip()]


def offered(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """The keys that a request brings: as a bearer token, or as Anthropic's clients send it."""
    found = []
    for name, value in headers:
        scheme, _unused, token = value.partition(b" ")
        if name.lower() == b"authorization" and scheme.lower() == b"bearer":
            found.append(token.strip())
        elif name.lower() == b"x-api-key":
            found.append(value.strip())
    return found


def fits(tokens: Iterable[bytes], keys: Iterable[bytes]) -> bool:
    """Whether one of the tokens is one of the keys, in a time that tells nothing about them."""
    match = False
    known = list(keys)
    for token in tokens:
        for key in known:
            match |= hmac.compare_digest(token, key)
    return match


def is_open(path: str, client: str, rules: Mapping[str, Iterable[str]]) -> bool:
    """Whether the inventory lets this client in without a key. rules: path to the networks it is open to."""
    networks = rules.get(path.rstrip("/") or "/")
    if networks is None:
        return False
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in ipaddress.ip_network(network, strict=False) for network in networks)


class Door:
    """ASGI middleware, as `vllm serve --middleware` loads it."""

    def __init__(self, app: App, folder: Path | None = None) -> None:
        self.app = app
        folder = folder or Path(pwd.getpwuid(os.getuid()).pw_dir) / FOLDER
        self.keys, self.rules = Watched(folder / "api.keys"), Watched(folder / "door.json")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let the request through, or answer it with 401."""
        if scope["type"] not in ("http", "websocket") or self.lets_in(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self.refuse(send)

    def lets_in(self, scope: Mapping[str, Any]) -> bool:
        """Whether a request may pass."""
        if scope.get("method") == "OPTIONS":
            # A browser asks so before its request, without the key. The answer holds nothing.
            return True
        path = str(scope["path"]).removeprefix(str(scope.get("root_path", "")))
        client = (scope.get("client") or ("", 0))[0]
        try:
            rules = json.loads(self.rules.text() or "{}")
        except ValueError:
            rules = {}
        return is_open(path, client, rules) or fits(offered(scope["headers"]), keys_of(self.keys.text()))

    @staticmethod
    async def refuse(send: Send) -> None:
        """401 in the shape of OpenAI's errors, which clients show."""
        error = {"message": "a key is needed: Authorization: Bearer KEY", "type": "invalid_request_error", "code": 401}
        body = json.dumps({"error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})
