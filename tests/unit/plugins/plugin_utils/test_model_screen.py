# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of progress: live ones on a terminal, few ones in a log, through Ansible's own runner."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible.utils.display import Display
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils import _model_screen
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils._model_screen import Screen, frame, terminal

from testbed.models import make_shards

ROOT = Path(__file__).resolve().parents[4]


class Terminal:
    """As much of a terminal as the frames need: rows that scroll, one saved place, clearing."""

    def __init__(self, height: int = 6) -> None:
        self.rows = [""] * height
        self.row, self.column, self.saved = 0, 0, (0, 0)

    def feed(self, text: str) -> None:
        for part in re.findall(r"\033\[\d*[A-Z]|\0337|\0338|.|\n|\r", text):
            if part == "\n":
                self._down()
            elif part == "\r":
                self.column = 0
            elif part == "\0337":
                self.saved = (self.row, self.column)
            elif part == "\0338":
                self.row, self.column = self.saved
            elif part == "\033[J":
                self.rows[self.row] = self.rows[self.row][: self.column]
                self.rows[self.row + 1 :] = [""] * (len(self.rows) - self.row - 1)
            elif part == "\033[K":
                self.rows[self.row] = self.rows[self.row][: self.column]
            elif part.startswith("\033["):
                self.row = max(self.row - int(part[2:-1] or 1), 0)
            else:
                line = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = line[: self.column] + part + line[self.column + 1 :]
                self.column += 1

    def _down(self) -> None:
        if self.row == len(self.rows) - 1:
            self.rows = [*self.rows[1:], ""]
        else:
            self.row += 1


def test_a_frame_is_drawn_below_and_the_cursor_stays() -> None:
    screen = Terminal()
    screen.feed("TASK\n\r")
    screen.feed(frame(["one", "two"], 80))
    assert screen.rows == ["TASK", "", "", "one", "two", ""]
    assert (screen.row, screen.column) == (1, 0)
    # The runner's next line takes the row that was left free for it, and the next frame goes below.
    screen.feed("ok: [one]\n\r" + frame(["two, further"], 80))
    assert screen.rows == ["TASK", "ok: [one]", "", "", "two, further", ""]


def test_at_the_end_of_the_screen_it_scrolls() -> None:
    screen = Terminal(height=5)
    screen.feed("1\n\r2\n\r3\n\r4\n\r")
    for text in ("a", "b"):
        screen.feed(frame([text], 80))
        assert screen.rows == ["3", "4", "", "", text]
        assert (screen.row, screen.column) == (2, 0)


def test_long_lines_are_cut_to_the_width() -> None:
    assert max(len(row) for row in re.sub(r"\033\[?\w+|\r", "", frame(["x" * 500], 40)).split("\n")) < 40


def test_no_terminal_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    main, side = pty.openpty()
    process = subprocess.Popen(["sleep", "60"], stdout=side)
    try:
        monkeypatch.setenv("TERM", "xterm")
        assert terminal(process.pid) == os.ttyname(side)
        monkeypatch.setenv("DGX_SPARK_PROGRESS", "plain")
        assert terminal(process.pid) == ""
        monkeypatch.delenv("DGX_SPARK_PROGRESS")
        monkeypatch.setenv("TERM", "dumb")
        assert terminal(process.pid) == ""
    finally:
        process.kill()
        process.wait()
        os.close(main)
        os.close(side)
    assert terminal(2**30) == ""


def test_a_log_gets_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now = [1000.0]
    monkeypatch.setattr(_model_screen, "terminal", lambda _pid: "")
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Display, "display", lambda _self, text: said.append(text))
    screen = Screen("spark-01")
    for second in range(35):
        now[0] = 1000.0 + second
        screen.show(f"at {second}")
    screen.close()
    assert said == [f"  spark-01: at {second}" for second in (3, 13, 23, 33)]


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Look into it
      dgx_spark.vllm.model_tree_info:
        path: {path}
        deep: true
        manifest: {manifest}
      register: found
    - ansible.builtin.assert:
        that: found.complete and found.shards == 4
"""


@pytest.fixture
def play(tmp_path: Path) -> Path:
    from tests.unit.plugins.module_utils.mirror_nodes import manifest_of

    folder = make_shards.make(tmp_path / "models" / "Shards", 400_000_000, 4)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest_of(folder)))
    (tmp_path / "play.yml").write_text(PLAY.format(path=folder, manifest=tmp_path / "manifest.json"))
    return tmp_path / "play.yml"


def command(play: Path) -> list[str]:
    program = Path(sys.executable).parent / "ansible-playbook"
    return [
        str(program),
        "-i",
        "one,two,",
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        str(play),
    ]


def test_on_a_terminal_every_host_has_a_live_line(play: Path) -> None:
    main, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "ANSIBLE_NOCOLOR": "1"}
    environment.pop("DGX_SPARK_PROGRESS", None)
    process = subprocess.Popen(command(play), cwd=ROOT, env=environment, stdin=side, stdout=side, stderr=side)
    os.close(side)
    text = b""
    while select.select([main], [], [], 120)[0]:
        try:
            block = os.read(main, 65536)
        except OSError:
            break
        text += block
    assert process.wait() == 0, text[-3000:]
    os.close(main)
    shown = text.decode()
    assert "\0337" in shown
    assert re.search(r"(one|two): checking Shards", shown)
    assert not list(Path("/tmp").glob(f"dgx-spark-vllm-{os.getuid()}-{process.pid}"))


def test_in_a_log_there_is_no_escape_and_the_result_is_the_same(play: Path) -> None:
    done = subprocess.run(command(play), cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\033" not in done.stdout
