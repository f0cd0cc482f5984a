# SPDX-License-Identifier: GPL-3.0-or-later
"""An environment that somebody else made: looked at, noted down, and never written to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_adopt, _engine_state
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_build import BuildError

from tests.unit.plugins.engine_makers import FILES
from tests.unit.plugins.engine_releases import EXPECTED, SITE, built

SHIPPED = FILES["vllm"]["vllm/models/laguna.py"]
PATCH = (
    'summary="s"\nreason="r"\npackage="vllm"\nfile="models/laguna.py"\npresent="guarded"\n'
    f'[[known]]\nbefore="{"0" * 64}"\nafter="{"0" * 64}"\n'
    "[[edit]]\nanchor=\"return 'shipped'\"\nreplacement=\"return guarded('shipped')\"\n"
)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """The same as a release is, at another place and without anything of ours in it."""
    path = built(tmp_path / "theirs", "venv")
    for name in ("manifest.json", "release.json", "generated.zip"):
        (path / name).unlink()
    return path


def everything(folder: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_size, path.lstat().st_ino) for path in folder.rglob("*")
    }


def adopt(root: Path, venv: Path, patches: dict[str, str] | None = None, check: bool = False) -> dict[str, object]:
    return _engine_adopt.adopt(root, "adopted-1", venv, EXPECTED, ["ray"], [], {}, patches or {}, check)


def test_it_is_never_written_to(tmp_path: Path, venv: Path) -> None:
    for compiled in venv.rglob("*.pyc"):
        compiled.unlink()
    before = everything(venv)
    summary = adopt(tmp_path, venv)
    assert summary["versions"]["vllm"] == "0.25.1+cpu"  # type: ignore[index]
    assert everything(venv) == before
    state = _engine_state.look_at(str(tmp_path), "adopted-1", str(venv), deep=True)
    assert state["state"] == "ready"
    assert state["versions"] == summary["versions"]
    assert state["adopted"] == [str(venv)]
    assert everything(venv) == before


def test_a_change_of_its_owner_is_seen(tmp_path: Path, venv: Path) -> None:
    adopt(tmp_path, venv)
    (venv / SITE / "ray/core.py").write_text("# upgraded\n")
    state = _engine_state.look_at(str(tmp_path), "adopted-1", str(venv))
    assert state["state"] == "damaged"
    assert [item["package"] for item in state["differences"]] == ["ray"]
    adopt(tmp_path, venv)
    assert _engine_state.look_at(str(tmp_path), "adopted-1", str(venv))["state"] == "ready"


def test_bytecode_that_somebody_compiles_is_no_change(tmp_path: Path, venv: Path) -> None:
    adopt(tmp_path, venv)
    next(venv.rglob("cli.*.pyc")).write_bytes(b"other")
    assert _engine_state.look_at(str(tmp_path), "adopted-1", str(venv), deep=True)["state"] == "ready"


def test_check_mode_verifies_and_notes_nothing_down(tmp_path: Path, venv: Path) -> None:
    adopt(tmp_path, venv, check=True)
    assert not (tmp_path / "state").exists()


def test_a_patch_that_lacks_is_an_error_and_is_not_applied(tmp_path: Path, venv: Path) -> None:
    file = venv / SITE / "vllm/models/laguna.py"
    with pytest.raises(BuildError, match="lacks the patch laguna; an adopted environment is not written to"):
        adopt(tmp_path, venv, {"laguna": PATCH})
    assert file.read_text() == SHIPPED
    file.write_text(SHIPPED.replace("'shipped'", "guarded('shipped')"))
    adopt(tmp_path, venv, {"laguna": PATCH})
    state = _engine_state.look_at(str(tmp_path), "adopted-1", str(venv))
    assert state["patches"]["laguna"]["verdict"] == "present"
    note = json.loads((tmp_path / "state/adopted/adopted-1.json").read_text())
    assert note["path"] == str(venv)


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path, venv: Path) -> None:
    """C42 among it."""
    wanted = {"torch_cuda": "12.9", "ray": "2.50.0"}
    with pytest.raises(BuildError) as error:
        _engine_adopt.adopt(tmp_path, "a", venv, wanted, [], [], {}, {"laguna": PATCH}, False)
    for part in ("torch_cuda is 13.0, expected 12.9", "ray is 2.56.0, expected 2.50.0", "lacks the patch laguna"):
        assert part in str(error.value)


def test_what_is_no_environment_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"bin/python is not there; engine_adopt must name"):
        adopt(tmp_path, tmp_path)
