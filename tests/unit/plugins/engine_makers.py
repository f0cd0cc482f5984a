# SPDX-License-Identifier: GPL-3.0-or-later
"""Small true things to test the engine with: wheels, locks, indexes over HTTP, wheelhouses, environments made by uv.

The packages named vllm, torch and ray here hold a few lines each; what is tested with them is uv's real work, the real
files and the real programs, not what those packages do.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_lock, _engine_tags, _engine_wheelhouse

UV = Path(sys.executable).with_name("uv")
PYTHON = f"3.{sys.version_info[1]}"
TARGET = _engine_tags.Target(PYTHON, "x86_64", (2, 31))
CLI = "def main():\n    import torch\n    print('0.25.1+cpu')\n"
FILES = {
    "vllm": {
        "vllm/__init__.py": "",
        "vllm/cli.py": CLI,
        "vllm/models/laguna.py": "def load():\n    return 'shipped'\n",
    },
    "torch": {
        "torch/__init__.py": "from . import version\nfrom .version import __version__\n",
        "torch/version.py": "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n",
        "torch/lib/libtorch.so": "ELF" + "x" * 300_000,
    },
    "ray": {"ray/__init__.py": "", "ray/core.py": "".join(f"VALUE_{n} = {n}\n" for n in range(400))},
}
VERSIONS = {"vllm": "0.25.1+cpu", "torch": "2.11.0", "ray": "2.56.0"}
SCRIPTS = {"vllm": "[console_scripts]\nvllm = vllm.cli:main\n"}


def wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> Path:
    """A wheel with a RECORD that is right."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {item}\n" for item in requires)
    contents = dict(files)
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    contents[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if name in SCRIPTS:
        contents[f"{info}/entry_points.txt"] = SCRIPTS[name]
    record = ""
    for member, text in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{member},sha256={digest},{len(text)}\n"
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in contents.items():
            archive.writestr(zipfile.ZipInfo(member, (2026, 1, 1, 0, 0, 0)), text)
    return path


def describe(path: Path, url: str = "") -> _engine_lock.Wheel:
    """What a lock says of a wheel."""
    name = _engine_tags.parse_wheel_name(path.name)
    content = path.read_bytes()
    return _engine_lock.Wheel(
        name.name, name.version, path.name, url, len(content), hashlib.sha256(content).hexdigest()
    )


def uv_wheel(folder: Path) -> Path:
    """A wheel that holds uv, as a call of the one beside this interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "uv-0.0.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("uv-0.0.1.data/scripts/uv", f'#!/bin/sh\nexec {UV} "$@"\n')
    return path


def wheelhouse(folder: Path, changed: dict[str, dict[str, str]] | None = None) -> Path:
    """A wheelhouse of vllm, torch and ray, with the lists that a build reads."""
    files = {**FILES, **(changed or {})}
    paths = [wheel(folder, name, VERSIONS[name], files[name]) for name in sorted(files)]
    _engine_wheelhouse.write_lists([describe(path) for path in paths], describe(uv_wheel(folder)), folder)
    return folder


def pylock(wheels: list[_engine_lock.Wheel], target: _engine_tags.Target = TARGET) -> str:
    """A lock of these wheels as uv writes one."""
    text = 'lock-version = "1.0"\ncreated-by = "uv"\n'
    for item in wheels:
        source = f'url = "{item.url}"' if item.url else f'path = "{item.filename}"'
        text += f'\n[[packages]]\nname = "{item.package}"\nversion = "{item.version}"\n'
        text += f'wheels = [{{ {source}, size = {item.size}, hashes = {{ sha256 = "{item.sha256}" }} }}]\n'
    return text


class Index:
    """A web server over a folder that counts what it sends, and cuts a transfer when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent = 0
        self.asked: list[str] = []
        self.cut_after: int | None = None
        self.ranges = True
        self.url = ""

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """One request."""
        path = self.folder / handler.path.lstrip("/").replace("%2B", "+")
        path = path / "index.html" if path.is_dir() else path
        self.asked.append(handler.path)
        if not path.is_file():
            handler.send_error(404)
            return
        content, start = path.read_bytes(), 0
        asked = handler.headers.get("Range")
        if asked and self.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(content) - start))
        if path.suffix == ".html":
            handler.send_header("Content-Type", "text/html")
        handler.end_headers()
        if handler.command == "HEAD":
            return
        body = content[start:]
        if self.cut_after is not None and len(body) > self.cut_after:
            body, self.cut_after = body[: self.cut_after], None
            handler.close_connection = True
        handler.wfile.write(body)
        self.sent += len(body)


@contextmanager
def serve(folder: Path, address: str = "127.0.0.1", bind: str = "") -> Iterator[Index]:
    """The server for as long as the block lasts. bind: where it listens, if not on the address that it is known by."""
    index = Index(folder)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.answer(self)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Be quiet."""

    server = http.server.ThreadingHTTPServer((bind or address, 0), Handler)
    index.url = f"http://{address}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def page(folder: Path, package: str, links: list[str]) -> None:
    """The page of a package in a simple index without hashes and dates."""
    target = folder / package / "index.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    anchors = "".join(f'<a href="{link}">{link.rpartition("/")[2].replace("%2B", "+")}</a>\n' for link in links)
    target.write_text(f"<!DOCTYPE html><html><body>{anchors}</body></html>")


def dump(path: Path, value: Any) -> Path:
    """A JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path
