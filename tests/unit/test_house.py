# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of this repository that a program can check."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 300
# Data and licence texts, which nobody reads line by line.
LONG_BY_NATURE = ("LICENSE", "CHANGELOG.rst", "roles/engine/files/locks/", "cards/card.schema.json")
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
NODE_ROLES_WITHOUT_DEPENDENCY = {"deployment"}


def tracked() -> list[Path]:
    """Files of the checkout that git tracks or would track."""
    argv = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def load(path: Path) -> dict[str, object]:
    """A YAML file that must hold a mapping."""
    parsed = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(parsed, dict), path
    return parsed


def test_no_file_is_longer_than_a_person_reads() -> None:
    long = {}
    for path in tracked():
        name = str(path.relative_to(ROOT))
        if not name.startswith(LONG_BY_NATURE):
            lines = path.read_bytes().count(b"\n")
            if lines > MAX_LINES:
                long[name] = lines
    assert long == {}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_the_same_keys_in_defaults_and_argument_specs(role: str) -> None:
    defaults = yaml.safe_load((ROOT / f"roles/{role}/defaults/main.yml").read_text(encoding="utf-8")) or {}
    options = load(ROOT / f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"].get("options", {})  # type: ignore[index]
    assert sorted(defaults) == sorted(options)
    assert all(str(option.get("description", "")).strip() for option in options.values())


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_documented_and_its_main_is_a_table_of_contents(role: str) -> None:
    assert (ROOT / f"roles/{role}/README.md").read_text(encoding="utf-8").startswith(f"# {role}\n")
    tasks = yaml.safe_load((ROOT / f"roles/{role}/tasks/main.yml").read_text(encoding="utf-8"))
    assert tasks
    assert all(task.get("name") for task in tasks)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_variable_has_its_prefix(role: str) -> None:
    defaults = yaml.safe_load((ROOT / f"roles/{role}/defaults/main.yml").read_text(encoding="utf-8")) or {}
    prefixes = (f"{role}_", f"_{role}_")
    # Names that callers rely on.
    public = {"guard_min_available"}
    assert [name for name in defaults if not name.startswith(prefixes) and name not in public] == []


def test_each_playbook_holds_order_and_nothing_else() -> None:
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        for play in yaml.safe_load(path.read_text(encoding="utf-8")):
            assert play.get("name"), path
            assert "handlers" not in play, path


def test_site_runs_the_steps_in_the_order_of_a_bring_up() -> None:
    steps = [
        play["ansible.builtin.import_playbook"] for play in yaml.safe_load((ROOT / "playbooks/site.yml").read_text())
    ]
    wanted = ["preflight.yml", "linger.yml", "engine.yml", "patches.yml", "models.yml", "serve.yml", "acceptance.yml"]
    assert [step for step in steps if step in wanted] == wanted
    # Ray comes up with the server, so that a run writes and looks once.
    assert {"role": "ray"} in load(ROOT / "roles/serve/meta/main.yml")["dependencies"]  # type: ignore[operator]


def test_nothing_names_the_machine_on_which_it_was_written() -> None:
    banned = [b"/work" + b"/main", b"/work" + b"/shared", b"." + b"library", b"../" + b"shared", b"/tmp" + b"/boot"]
    hits = [
        (str(path.relative_to(ROOT)), word.decode())
        for path in tracked()
        for word in banned
        if word in path.read_bytes()
    ]
    assert hits == []


def test_the_collection_ships_what_an_installed_one_needs() -> None:
    directives = "\n".join(load(ROOT / "galaxy.yml")["manifest"]["directives"])  # type: ignore[index]
    for part in ("plugins", "roles", "playbooks", "meta", "cards", "LICENSE"):
        assert part in directives
    assert load(ROOT / "meta/runtime.yml") == {"requires_ansible": ">=2.20.0"}


def test_every_link_of_the_docs_leads_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("roles/*/README.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append((str(page.relative_to(ROOT)), target))
    assert broken == []


def test_what_is_installed_on_the_controller_is_pinned_exactly() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [line for line in pins if "==" not in line] == []
