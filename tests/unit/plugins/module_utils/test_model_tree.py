# SPDX-License-Identifier: GPL-3.0-or-later
"""What a whole model folder is: every way of breaking one is found by its name, and nothing else is."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils._model_tree import check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.plugins.module_utils.model_trees import make_tree, read_index, shard_bytes, shard_name, write_index

INDEX = "model.safetensors.index.json"


def kinds(root: Path) -> list[tuple[str, str]]:
    return [(item["file"], item["kind"]) for item in check(root).problems]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "model")


def test_a_whole_tree_is_complete(tree: Path) -> None:
    found = check(tree)
    assert found.problems == []
    assert found.shards == 24
    assert found.bytes == sum(path.stat().st_size for path in tree.iterdir())


def test_one_file_without_an_index_is_complete(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "laguna"}')
    (tmp_path / "model.safetensors").write_bytes(shard_bytes({"a": 4}))
    assert check(tmp_path).complete


def test_extra_files_do_no_harm(tree: Path) -> None:
    """C76."""
    (tree / "README.md").write_text("read me")
    (tree / "images").mkdir()
    (tree / "images" / "plot.png").write_bytes(b"\x89PNG")
    (tree / ".cache" / "huggingface").mkdir(parents=True)
    (tree / ".cache" / "huggingface" / "x.lock").touch()
    (tree / "consolidated.safetensors").write_bytes(shard_bytes({"other": 4}))
    found = check(tree)
    assert found.complete
    assert found.notes == ["consolidated.safetensors is not in the index"]


def _short(root: Path) -> None:
    path = root / shard_name(17, 24)
    os.truncate(path, path.stat().st_size - 1)


def _long(root: Path) -> None:
    with (root / shard_name(17, 24)).open("ab") as stream:
        stream.write(b"x")


def _foreign_index(root: Path) -> None:
    write_index(root, {name: shard.replace("-of-00024", "-of-00030") for name, shard in read_index(root).items()})


def _swap(root: Path) -> None:
    first, second = root / shard_name(3, 24), root / shard_name(4, 24)
    raw = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(raw)


def _left_by_the_hub(root: Path) -> None:
    (root / ".cache").mkdir()
    (root / ".cache" / "a.incomplete").write_bytes(b"x")


def _without_index(root: Path) -> None:
    (root / INDEX).unlink()
    (root / shard_name(9, 24)).unlink()


BREAKS: list[tuple[Callable[[Path], object], list[tuple[str, str]]]] = [
    # C70: found by size, with the header as witness.
    (_short, [(shard_name(17, 24), "truncated")]),
    (_long, [(shard_name(17, 24), "trailing")]),
    # C71
    (lambda r: (r / "model-00003.incomplete").write_bytes(b"x"), [("model-00003.incomplete", "incomplete_file")]),
    (_left_by_the_hub, [(".cache/a.incomplete", "incomplete_file")]),
    (lambda r: (r / shard_name(5, 24)).unlink(), [(shard_name(5, 24), "absent_shard")]),
    (lambda r: (r / "config.json").unlink(), [("config.json", "no_config")]),
    (lambda r: (r / "config.json").write_text("{"), [("config.json", "bad_config")]),
    (lambda r: (r / "config.json").write_text("[]"), [("config.json", "bad_config")]),
    (lambda r: (r / "config.json").write_text("{}"), [("config.json", "bad_config")]),
    (lambda r: (r / INDEX).write_text("{"), [(INDEX, "bad_index")]),
    (lambda r: (r / INDEX).write_text('{"weight_map": {}}'), [(INDEX, "bad_index")]),
    (lambda r: (r / INDEX).write_text('{"weight_map": {"a": "../x.safetensors"}}'), [(INDEX, "bad_index")]),
    (lambda r: (r / INDEX).write_text('{"weight_map": {"a": 7}}'), [(INDEX, "bad_index")]),
    (lambda r: (r / INDEX).unlink(), [(INDEX, "no_index")]),
    (_without_index, [(shard_name(9, 24), "absent_shard"), (INDEX, "no_index")]),
    (_foreign_index, [(INDEX, "foreign_index")]),
    (_swap, [(shard_name(3, 24), "foreign_shard"), (shard_name(4, 24), "foreign_shard")] * 1),
    (lambda r: (r / "tokenizer.json").write_bytes(b""), [("tokenizer.json", "empty_file")]),
    (lambda r: (r / shard_name(2, 24)).write_bytes(b""), [(shard_name(2, 24), "empty_file")]),
    (lambda r: (r / "x.json").symlink_to("nowhere"), [("x.json", "dangling_link")]),
    (lambda r: (r / "x.json").symlink_to("x.json"), [("x.json", "dangling_link")]),
    (lambda r: os.mkfifo(r / "pipe"), [("pipe", "not_a_file")]),
    (
        lambda r: (r / shard_name(2, 24)).write_bytes(b"\x05\0\0\0\0\0\0\0[1,2]"),
        [(shard_name(2, 24), "bad_header")],
    ),
    (
        lambda r: (r / shard_name(2, 24)).write_bytes(shard_bytes({"layers.2.part0.weight": 50})),
        [(shard_name(2, 24), "foreign_shard")],
    ),
    (
        lambda r: (r / shard_name(2, 24)).write_bytes(
            shard_bytes({f"layers.2.part{i}.weight": 50 + i for i in range(3)} | {"stranger": 1})
        ),
        [(shard_name(2, 24), "foreign_shard")],
    ),
]


@pytest.mark.parametrize(("hurt", "expected"), BREAKS)
def test_what_is_broken_is_named_and_nothing_else(
    tree: Path, hurt: Callable[[Path], object], expected: list[tuple[str, str]]
) -> None:
    hurt(tree)
    found = kinds(tree)
    assert sorted(set(found)) == sorted(set(expected))


def test_several_faults_are_told_at_once(tree: Path) -> None:
    _short(tree)
    (tree / shard_name(5, 24)).unlink()
    (tree / "config.json").unlink()
    assert len(kinds(tree)) == 3


def test_an_index_that_names_absent_shards_and_one_of_other_shards_say_different_things(tree: Path) -> None:
    (tree / shard_name(5, 24)).unlink()
    absent = check(tree).problems[0]
    make_tree(tree)
    _foreign_index(tree)
    foreign = check(tree).problems[0]
    assert absent["expected"] == "the shard that the index names"
    assert foreign["expected"] == "the index that belongs to these shards"
    assert "of-00030" in foreign["found"]


def test_a_folder_that_is_not_one(tmp_path: Path) -> None:
    assert kinds(tmp_path / "nothing") == [("", "absent")]
    (tmp_path / "file").write_text("x")
    assert kinds(tmp_path / "file") == [("", "not_a_folder")]
    (tmp_path / "empty").mkdir()
    assert [kind for _, kind in kinds(tmp_path / "empty")] == ["no_config", "no_weights"]


def test_other_formats_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "laguna"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert check(tmp_path).problems[0]["found"] == "pytorch_model.bin, which is not safetensors"


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_a_file_that_this_user_cannot_read(tree: Path) -> None:
    (tree / "tokenizer.json").chmod(0)
    assert kinds(tree) == [("tokenizer.json", "unreadable")]


def test_links_into_a_hub_cache_are_followed(tmp_path: Path) -> None:
    """C75: judged by what they lead to."""
    blobs = make_tree(tmp_path / "blobs")
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(os.path.relpath(path, snapshot))
    found = check(snapshot)
    assert found.complete
    assert found.bytes == check(blobs).bytes
    (blobs / shard_name(1, 24)).unlink()
    assert {"dangling_link"} <= {kind for _, kind in kinds(snapshot)}


def test_a_folder_that_links_to_itself_ends(tree: Path) -> None:
    (tree / "loop").symlink_to(tree)
    assert check(tree).complete


def test_a_manifest_adds_its_own_sizes(tree: Path) -> None:
    entries = [{"path": p.name, "size": p.stat().st_size, "sha256": ""} for p in sorted(tree.iterdir())]
    assert check(tree, {"files": entries}).complete
    (tree / "tokenizer.json").write_text("{ }")
    os.truncate(tree / shard_name(17, 24), 100)
    (tree / "config.json").unlink()
    found = {(p["file"], p["kind"]) for p in check(tree, {"files": entries}).problems}
    expected = {("tokenizer.json", "wrong_size"), (shard_name(17, 24), "truncated"), ("config.json", "no_config")}
    assert found == expected


@given(st.integers(1, 24), st.integers(0, 10_000), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_truncation_swap_or_renaming_of_a_shard_is_found(
    tmp_path_factory: pytest.TempPathFactory, number: int, cut: int, chance: random.Random
) -> None:
    tree = make_tree(tmp_path_factory.mktemp("fuzz") / "model")
    path = tree / shard_name(number, 24)
    way = chance.choice(["cut", "swap", "rename", "copy"])
    other = tree / shard_name(number % 24 + 1, 24)
    if way == "cut":
        os.truncate(path, cut % path.stat().st_size)
    elif way == "swap":
        raw = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(raw)
    elif way == "rename":
        path.rename(tree / shard_name(number + 24, 24))
    else:
        path.write_bytes(other.read_bytes())
    assert any(file == path.name for file, _ in kinds(tree)), way


@given(st.binary(max_size=300), st.sampled_from(["config.json", INDEX, shard_name(1, 2)]))
@settings(max_examples=200, deadline=None)
def test_no_content_makes_a_traceback(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    tree = make_tree(tmp_path_factory.mktemp("any") / "model", shards=2)
    (tree / name).write_bytes(content)
    found = check(tree)
    assert {item["file"] for item in found.problems} >= {name}


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
@settings(max_examples=200, deadline=None)
def test_no_index_makes_a_traceback(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    tree = make_tree(tmp_path_factory.mktemp("index") / "model", shards=2)
    (tree / INDEX).write_text(json.dumps({"weight_map": value}))
    assert not check(tree).complete
