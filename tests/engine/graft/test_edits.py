"""Edits of files: applied, checked by other code, shown as hunks and as a patch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TransferError
from engine.graft.edits import (
    Edit,
    apply,
    edited,
    grouped,
    hunks_of,
    only_spans_changed,
    patch_text,
)

FILE = Path("/k/a.cu")
SPANS = st.lists(st.tuples(st.integers(0, 40), st.text("xy\n", max_size=3)), max_size=4)


def edit(start: int, end: int, text: str, title: str = "t") -> Edit:
    return Edit(FILE, start, end, text, title, "why", "mask")


@given(st.binary(min_size=40, max_size=40), SPANS)
def test_only_the_spans_change(data: bytes, spans: list[tuple[int, str]]) -> None:
    edits = [edit(at, at, text) for at, text in spans]
    (new,) = apply({FILE: data}, edits).values() or (data,) if edits else (data,)
    assert only_spans_changed(data, new, edits)
    broken = bytes([data[0] ^ 1]) + new[1:] if not any(at == 0 for at, _ in spans) else None
    assert broken is None or not only_spans_changed(data, broken, edits)


def test_no_edit_is_no_change() -> None:
    assert apply({FILE: b"\xef\xbb\xbfint x;\r\n\tint y;"}, []) == {}
    assert patch_text({FILE: b"a\n"}, {FILE: b"a\n"}, {}) == ""


def test_overlapping_edits_are_refused() -> None:
    with pytest.raises(TransferError, match="overlap"):
        apply({FILE: b"abcdef"}, [edit(0, 3, "x"), edit(2, 4, "y")])


def test_hunks_are_whole_lines_as_they_are_and_become() -> None:
    data = b"int a;\nf(a);\nint b;\n"
    edits = [edit(9, 10, "b"), edit(6, 6, "\nint c;", "declare"), edit(17, 18, "d")]
    far = edit(60, 60, "x")  # lines away: a hunk of its own
    assert len(grouped([edits[0], far], {FILE: data + b"\n" * 50})) == 2
    hunks = hunks_of({FILE: data}, edits, {FILE: "a.cu"})
    assert [(h.title, h.before, h.after) for h in hunks] == [
        ("t (a.cu:2)", "f(a);\nint b;", "f(b);\nint d;"),
        ("declare (a.cu:1)", "int a;", "int a;\nint c;"),
    ]
    group = grouped(edits, {FILE: data})[0]
    made = apply({FILE: data}, edited(group, {FILE: data}, "g();"))
    assert made[FILE] == b"int a;\ng();\n"
    assert Edit.from_json(edits[0].to_json()) == edits[0]


@given(st.text("xyé\n", max_size=12), st.text("xyé\n", max_size=12))
def test_edited_lines_are_the_persons(old: str, new: str) -> None:
    data = f"before\n{old}".encode()
    group = [edit(7, len(data), "made")]
    made = apply({FILE: data}, edited(group, {FILE: data}, new))
    assert made.get(FILE, data) == f"before\n{new}".encode()


def test_what_stays_of_edited_lines_is_in_no_edit() -> None:
    data = b"  a;  // first\n  b;\n"
    group = [edit(4, 4, "\n  {x}"), edit(19, 19, "\n  {y}")]
    after = "  a;\n  {z}  // first\n  b;\n  {w}"
    made = edited(group, {FILE: data}, after)
    assert [(e.start, e.end, e.text) for e in made] == [(4, 4, "\n  {z}"), (19, 19, "\n  {w}")]


def test_a_patch_is_of_the_authors_files() -> None:
    old, new = {FILE: b"a\nb"}, {FILE: b"a\nc"}
    assert patch_text(old, new, {FILE: "src/a.cu"}) == (
        "--- a/src/a.cu\n+++ b/src/a.cu\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n"
        "+c\n\\ No newline at end of file\n"
    )


@pytest.mark.parametrize("own", ["\n", "\r\n"])
def test_lines_end_as_the_authors_do(own: str) -> None:
    """Whoever wrote the text: the rules, which write "\\n", or a person in either way."""
    file = Path("/k.cu")
    data = own.join(["int a;", "int b;", "int c;"]).encode()
    files = {file: data}
    after = data.index(b"int b;") + 6
    put = Edit(file, after, after, "\nint d;\nint e;", "t", "r")
    made = apply(files, [put])[file]
    assert made == own.join(["int a;", "int b;", "int d;", "int e;", "int c;"]).encode()
    assert only_spans_changed(data, made, [put])
    (hunk,) = hunks_of(files, [put], {})
    for typed in ("int x;\nint y;", "int x;\r\nint y;", "int x;\nint y;\r"):
        again = apply(files, edited([put], files, typed))[file]
        assert again == own.join(["int a;", "int x;", "int y;", "int c;"]).encode()
    assert apply(files, edited([put], files, hunk.after))[file] == made
    last = replace(put, start=len(data), end=len(data))
    assert apply(files, [last])[file] == data + f"{own}int d;{own}int e;".encode()
    assert apply(files, edited([last], files, "int z;"))[file].endswith(f"{own}int z;".encode())
