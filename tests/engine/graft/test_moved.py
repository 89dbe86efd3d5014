"""Edits moved onto another version of their file, and those that meet its changes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.graft.edits import Edit, apply
from engine.graft.moved import Moved, told
from engine.lift.cpp.tokens import Tokens

SOURCE = (Path(__file__).parent / "plain.cu").read_bytes()
OLD, NEW = Path("/old/plain.cu"), Path("/new/plain.cu")
AFTER, PARAMETER = b"dot *= scale;", b"float scale) {"


def put(at: int, text: str, end: int | None = None) -> Edit:
    return Edit(OLD, at, at if end is None else end, text, "Compute", "why")


def edits() -> list[Edit]:
    return [
        put(SOURCE.index(AFTER) + len(AFTER), "\n      dot = dot + slopes[head] * (n - row);"),
        put(SOURCE.index(PARAMETER) + len("float scale"), ", const float* slopes"),
    ]


def moved(new: bytes, own: list[Edit] | None = None) -> list[Edit | None]:
    move = Moved(SOURCE, new, NEW)
    return [move(e) for e in own or edits()]


def tokens(data: bytes) -> list[str]:
    return [t.text for t in Tokens(data).all]


def merged(new: bytes) -> bytes:
    found = [e for e in moved(new) if e is not None]
    assert len(found) == 2
    return apply({NEW: new}, found)[NEW]


def patched() -> bytes:
    return apply({OLD: SOURCE}, edits())[OLD]


def test_the_same_file_elsewhere_gives_the_same_bytes() -> None:
    assert merged(SOURCE) == patched()
    assert not Moved(SOURCE, SOURCE, NEW).changes


@pytest.mark.parametrize(
    "reformatted",
    [
        SOURCE.replace(b"\n", b"\r\n"),
        re.sub(rb"\s*\n\s*(?!#)(?<![>\w])(?<!//.)", b"\n", SOURCE),
        SOURCE.replace(b"{\n", b"\n{ // opens\n").replace(b"  ", b"\t"),
        SOURCE.replace(b"dot *= scale;", b"dot *=\n   scale ; /* scaled */"),
        re.sub(rb"//[^\n]*", b"", SOURCE),
    ],
)
def test_blanks_and_comments_take_no_part(reformatted: bytes) -> None:
    assert tokens(merged(reformatted)) == tokens(patched())
    assert not Moved(SOURCE, reformatted, NEW).changes


def test_names_are_those_of_the_new_version() -> None:
    new = re.sub(rb"\brow\b", b"query", re.sub(rb"\bdot\b", b"product", SOURCE))
    made = merged(new)
    assert b"product = product + slopes[head] * (n - query);" in made
    assert Moved(SOURCE, new, NEW).renamed == 2
    both = re.sub(rb"\brow\b", b"query", re.sub(rb"\bdot\b", b"product", patched()))
    assert tokens(made) == tokens(both)


def test_a_function_is_found_where_it_went() -> None:
    at = SOURCE.index(b"__global__")
    upto = SOURCE.index(b"void launch")
    kernel, launcher = SOURCE[at:upto], SOURCE[upto:]
    first = SOURCE[:at] + b"__global__ void attention(const float*);\n" + launcher + b"\n" + kernel
    again = merged(first)
    assert again.index(b"slopes[head]") > again.index(b"<<<")
    assert tokens(again)[-len(tokens(kernel)) :] != tokens(kernel)


def test_a_change_beside_an_edit_is_kept_and_one_at_its_place_meets_it() -> None:
    def other(text: bytes) -> bytes:
        return text.replace(b"l *= alpha;", b"l = l * alpha;").replace(b"kTile = 16", b"kTile = 32")

    beside = other(SOURCE)
    assert tokens(merged(beside)) == tokens(other(patched()))
    assert sum(Moved(SOURCE, beside, NEW).changes.values()) == 2
    score, parameter = moved(SOURCE.replace(AFTER, AFTER + b"\n      dot = tanhf(dot);"))
    assert score is None and parameter is not None
    score, _ = moved(SOURCE.replace(AFTER, b"dot = dot * scale;"))  # the statement before it
    assert score is not None


def test_a_replacement_wants_all_that_it_replaces() -> None:
    at = SOURCE.index(b"16;")
    part = [put(at + 1, "2", at + 2)]  # a part of a token
    (whole,) = moved(SOURCE, part)
    assert whole is not None and whole.text == "12"
    assert apply({NEW: SOURCE}, [whole])[NEW] == SOURCE.replace(b"16;", b"12;")
    assert moved(SOURCE.replace(b"16;", b"32;"), part) == [None]


def test_what_a_comment_would_take_in_has_no_place() -> None:
    ends_in_a_comment = [replace(edits()[0], text="\n      dot = -dot;  // turned")]
    assert None not in moved(SOURCE, ends_in_a_comment)
    one_line = SOURCE.replace(b"dot *= scale;\n      s[n]", b"dot *= scale; s[n]")
    assert moved(one_line, ends_in_a_comment) == [None]


def test_a_declaration_with_another_value_is_no_new_name() -> None:
    lines = SOURCE.split(b"\n")
    at = next(n for n, line in enumerate(lines) if b"int head =" in line)
    score, _ = moved(b"\n".join([*lines[:at], b"int more = 3;", *lines[at + 2 :]]))
    assert score is not None and "slopes[head]" in score.text


@settings(max_examples=25)
@given(st.data())
def test_merging_keeps_the_tokens_of_both(data: st.DataObject) -> None:
    """Whatever lines go or come: a moved edit gives the new version's tokens and its own, in its
    place, and nothing else."""
    lines = SOURCE.split(b"\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    comes = data.draw(st.sampled_from([b"", b"int more = 3;", b"// a word", b"row++; head--;"]))
    gone = data.draw(st.integers(0, 2))
    new = b"\n".join([*lines[:at], comes, *lines[at + gone :]])
    for own, edit in zip(edits(), moved(new), strict=True):
        if edit is not None:
            file, i, j, text = told(edit, {NEW: new})
            assert (file, i, list(text)) == (NEW, j, tokens(own.text.encode()))
            made = tokens(apply({NEW: new}, [edit])[NEW])
            assert made[i : i + len(text)] == list(text)
            assert made[:i] + made[i + len(text) :] == tokens(new)
