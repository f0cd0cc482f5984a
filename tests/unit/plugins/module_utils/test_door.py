"""Nothing passes the door without a key but what the inventory opened, and keys change without a restart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._door import Door, Message, Receive, Send, is_open

RULES = {"/health": ["0.0.0.0/0", "::/0"], "/metrics": ["127.0.0.0/8"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "api.keys").write_text("first-key\nsecond-key\n")
    (tmp_path / "door.json").write_text(json.dumps(RULES))
    return tmp_path


async def answer(scope: Message, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


def ask(
    door: Door, path: str, client: str = "10.0.0.9", kind: str = "http", method: str = "POST", **headers: str
) -> Any:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "path": path, "method": method, "headers": raw, "client": (client, 1), "root_path": ""}
    asyncio.run(door(scope, receive, send))
    return sent[0].get("status", sent[0]["type"]) if sent else "passed"


@pytest.mark.parametrize(
    ("path", "client", "headers", "status"),
    [
        ("/v1/completions", "10.0.0.9", {"authorization": "Bearer first-key"}, 200),
        ("/v1/completions", "10.0.0.9", {"authorization": "bearer second-key"}, 200),
        ("/v1/messages", "10.0.0.9", {"x_api_key": "first-key"}, 200),
        ("/v1/completions", "10.0.0.9", {"authorization": "Bearer first-ke"}, 401),
        ("/v1/completions", "127.0.0.1", {}, 401),
        ("/v1/completions", "10.0.0.9", {"authorization": "Basic first-key"}, 401),
        ("/v1/completions", "10.0.0.9", {"authorization": "Bearer "}, 401),
        ("/tokenize", "10.0.0.9", {}, 401),
        ("/openapi.json", "10.0.0.9", {}, 401),
        ("/health", "10.0.0.9", {}, 200),
        ("/health/", "10.0.0.9", {}, 200),
        ("/health/../v1/models", "10.0.0.9", {}, 401),
        ("/metrics", "127.0.0.1", {}, 200),
        ("/metrics", "::ffff:127.0.0.1", {}, 200),
        ("/metrics", "10.0.0.9", {}, 401),
        ("/metrics", "10.0.0.9", {"authorization": "Bearer first-key"}, 200),
    ],
)
def test_door(folder: Path, path: str, client: str, headers: dict[str, str], status: int) -> None:
    assert ask(Door(answer, folder), path, client, **headers) == status


def test_a_key_comes_and_goes_without_a_restart(folder: Path) -> None:
    door = Door(answer, folder)
    assert ask(door, "/v1/models", authorization="Bearer third-key") == 401
    beside = folder / "new"
    beside.write_text("third-key\n")
    beside.replace(folder / "api.keys")
    assert ask(door, "/v1/models", authorization="Bearer third-key") == 200
    assert ask(door, "/v1/models", authorization="Bearer first-key") == 401


@pytest.mark.parametrize("broken", ["keys gone", "keys empty", "rules gone", "rules torn"])
def test_a_broken_configuration_keeps_the_door_shut(folder: Path, broken: str) -> None:
    name = "api.keys" if broken.startswith("keys") else "door.json"
    if broken.endswith("gone"):
        (folder / name).unlink()
    else:
        (folder / name).write_text("" if broken.endswith("empty") else "{")
    door = Door(answer, folder)
    assert ask(door, "/v1/models", authorization="Bearer ") == 401
    assert ask(door, "/metrics", client="127.0.0.1") == (200 if name == "api.keys" else 401)


def test_other_kinds_of_connection(folder: Path) -> None:
    door = Door(answer, folder)
    assert ask(door, "/v1/realtime", kind="websocket") == "websocket.close"
    assert ask(door, "/v1/models", method="OPTIONS") == 200


def test_a_client_without_an_address_is_let_in_nowhere() -> None:
    assert not is_open("/health", "", RULES)
