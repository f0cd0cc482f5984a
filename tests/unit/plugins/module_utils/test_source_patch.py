# SPDX-License-Identifier: GPL-3.0-or-later
"""What a patch decides from a content alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _source_patch as sp
from hypothesis import given
from hypothesis import strategies as st

BUNDLED = Path(__file__).resolve().parents[4] / "roles/patches/files"
HEAD = 'summary = "s"\nreason = "r"\nfile = "m.py"\npresent = "guarded"\nnot_needed = "mapper"\n'
ORIGINAL = "def load():\n    call()\n"
RESULT = "def load():\n    guarded(call)\n"


def total(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def known(before: str = ORIGINAL, after: str = RESULT) -> str:
    return f'[[known]]\nbefore = "{total(before)}"\nafter = "{total(after)}"\n'


def patch(extra: str = "", sums: str | None = None) -> sp.Patch:
    edit = '[[edit]]\nanchor = """\n    call()\n"""\nreplacement = """\n    guarded(call)\n"""\n'
    text = HEAD + extra + edit + (known() if sums is None else sums)
    return sp.parse("p", text.encode())


@pytest.mark.parametrize(
    ("content", "verdict", "after"),
    [
        (ORIGINAL, "applied", RESULT),
        (RESULT, "present", RESULT),
        ("# another version\n" + ORIGINAL, "applied", "# another version\n" + RESULT),
        ("# guarded by hand\n    if x: guarded(call)\n", "present", "# guarded by hand\n    if x: guarded(call)\n"),
        ("def load():\n    mapper()\n", "not_needed", "def load():\n    mapper()\n"),
    ],
)
def test_decides_by_content_and_not_by_version(content: str, verdict: str, after: str) -> None:
    assert sp.decide(patch(), content.encode()) == (verdict, after.encode())


@pytest.mark.parametrize("content", ["def load():\n    other()\n", "", "\x00\xff", ORIGINAL + ORIGINAL])
def test_unknown_content_names_both_sums_and_the_anchor(content: str) -> None:
    with pytest.raises(sp.PatchError) as error:
        sp.decide(patch(), content.encode())
    text = str(error.value)
    assert total(content) in text
    assert total(ORIGINAL) in text
    assert total(RESULT) in text
    assert "    call()" in text
    assert "untouched" in text


def test_a_hand_edit_is_an_error_although_the_anchor_is_there() -> None:
    """C51: the package's own record says that somebody else was here."""
    edited = "# mine\n" + ORIGINAL
    with pytest.raises(sp.PatchError, match="edited by hand") as error:
        sp.decide(patch(), edited.encode(), shipped=total(ORIGINAL))
    assert total(edited) in str(error.value)
    assert sp.decide(patch(), edited.encode(), shipped=total(edited)).verdict == "applied"


def test_a_hand_edit_that_took_the_anchor_away_names_both() -> None:
    with pytest.raises(sp.PatchError, match=r"edited by hand(.|\n)*does not occur exactly once:\n    call\(\)"):
        sp.decide(patch(), b"def load():\n    other()\n", shipped=total(ORIGINAL))


def test_a_hand_edit_of_a_patched_file_counts_as_patched() -> None:
    edited = "# mine\n" + RESULT
    assert sp.decide(patch(), edited.encode(), shipped=total(ORIGINAL)).verdict == "present"


def test_a_patch_that_makes_something_else_of_a_known_original_is_refused() -> None:
    wrong = patch(sums=known(after="something else"))
    with pytest.raises(sp.PatchError, match="no known result"):
        sp.decide(wrong, ORIGINAL.encode())


@pytest.mark.parametrize("content", [RESULT, "# another version\n" + RESULT])
def test_absent_gives_the_original_back(content: str) -> None:
    back = sp.restore(patch(), content.encode(), None)
    assert back == ("restored", content.replace(RESULT, ORIGINAL).encode())
    assert sp.restore(patch(), back.content, None) == ("absent", back.content)


def test_absent_prefers_the_kept_original() -> None:
    # The text of the original occurs twice in the result of this one: only the kept bytes say which was which.
    twice = patch(sums=known("x"))
    kept = ORIGINAL.encode()
    assert sp.restore(twice, RESULT.encode(), kept).content == kept


def test_absent_refuses_what_this_patch_did_not_put_there() -> None:
    foreign = b"if guarded: other()\n"
    with pytest.raises(sp.PatchError, match="reinstall the package"):
        sp.restore(patch(), foreign, None)


@given(st.text(), st.text())
def test_forward_and_backward_are_each_others_inverse(before: str, after: str) -> None:
    item = patch()
    text = before + "\n    call()\n" + after
    new, missing = sp.forward(item, text)
    if not missing and new.count("\n    guarded(call)\n") == 1:
        assert sp.backward(item, new) == (text, "")


@given(st.binary())
def test_hostile_bytes_are_refused_and_never_changed(content: bytes) -> None:
    try:
        decision = sp.decide(patch(), content)
    except sp.PatchError:
        return
    assert decision.verdict in ("applied", "present", "not_needed")
    assert decision.verdict == "applied" or decision.content == content


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nonsense", "not TOML"),
        ("", "summary is missing; reason is missing; file is missing; present is missing; an edit"),
        (HEAD + "typo = 1\n" + known() + '[[edit]]\nanchor = "a"\nreplacement = "b"\n', "typo is no key"),
        (HEAD + '[[edit]]\nanchor = "a"\nreplacement = "b"\n', "sums of an original"),
        (HEAD + '[[known]]\nbefore = "x"\nafter = "y"\n[[edit]]\nanchor = "a"\n', "known[0].before is not a sha256"),
    ],
)
def test_a_bad_patch_says_everything_that_is_wrong(text: str, named: str) -> None:
    with pytest.raises(sp.PatchError) as error:
        sp.parse("bad", text.encode())
    assert named in str(error.value)


@pytest.mark.parametrize("path", sorted(BUNDLED.glob("*.toml")), ids=lambda path: path.stem)
def test_bundled_patches_are_whole(path: Path) -> None:
    item = sp.parse(path.stem, path.read_bytes())
    assert item.package
    assert item.check
    assert item.present not in "".join(edit.anchor for edit in item.edits)
    assert any(item.present in edit.replacement for edit in item.edits)
    compile(item.check, path.name, "exec")


def test_the_difference_can_be_read() -> None:
    text = sp.unified("m.py", ORIGINAL.encode(), RESULT.encode())
    assert "-    call()\n+    guarded(call)\n" in text
    assert sp.unified("m.py", RESULT.encode(), RESULT.encode()) == ""
