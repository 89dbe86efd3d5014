"""Bytes, lines and indentation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lift.cpp.provenance import Range
from engine.lower.patches.source_patch import (
    WIDTH,
    Patch,
    PatchError,
    Source,
    apply_patches,
    break_line,
    fit,
    reindent,
)

TEXT = b"a;\n{\n  b;  // beside\n\n  c; d;\n\n  e;\n\n}\n"


def at(text: bytes, word: bytes) -> Range:
    start = text.index(word)
    return Range(start, start + len(word))


def removed(text: bytes, *words: bytes) -> bytes:
    source = Source.of(text)
    lines = [source.whole_lines(at(text, w)) for w in words]
    patches = source.without_doubled_blanks([Patch(p.start, p.end, b"") for p in lines])
    return apply_patches(text, patches)


def test_patches_apply_in_order() -> None:
    patches = [Patch(4, 4, b"X"), Patch(0, 1, b"Z"), Patch(4, 4, b"Y")]
    assert apply_patches(b"abcdef", patches) == b"ZbcdXYef"
    with pytest.raises(PatchError):
        apply_patches(b"abcdef", [Patch(0, 3, b""), Patch(2, 4, b"")])


@given(st.binary(max_size=30), st.data())
def test_patching_a_part_is_patching_the_whole(data: bytes, draw: st.DataObject) -> None:
    start = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(start, len(data)))
    patch = Patch(start, end, b"new")
    assert apply_patches(data, [patch]) == data[:start] + b"new" + data[end:]
    assert apply_patches(data, [patch], start, end) == b"new"
    assert apply_patches(data, []) == data


def test_lines_of_a_statement() -> None:
    assert removed(TEXT, b"b;") == b"a;\n{\n  c; d;\n\n  e;\n\n}\n"
    assert removed(TEXT, b"d;") == b"a;\n{\n  b;  // beside\n\n  c;\n\n  e;\n\n}\n"
    assert removed(TEXT, b"c;") == b"a;\n{\n  b;  // beside\n\n  d;\n\n  e;\n\n}\n"
    assert removed(TEXT, b"e;") == b"a;\n{\n  b;  // beside\n\n  c; d;\n\n}\n"
    assert removed(b"x;\n\nf;\ng;\n\ny;\n", b"f;", b"g;") == b"x;\n\ny;\n"


def test_a_comment_that_goes_on_is_not_cut() -> None:
    text = b"f; /* one\n two */ g;\n"
    assert removed(text, b"f;") == b"/* one\n two */ g;\n"
    assert Source.of(text).rest_of_line(2) is None
    assert Source.of(b"f; // end\n").rest_of_line(2) == 10


def test_line_endings_and_units() -> None:
    assert Source.of(b"a\r\nb\r\n").eol == "\r\n"
    assert Source.of(b"a\nb\n").eol == "\n"
    assert Source.of(b"", [b"  ", b"    "]).unit == "  "
    assert Source.of(b"", [b"    ", b"        "]).unit == "    "
    assert Source.of(b"", [b"\t", b"\t\t"]).unit == "\t"
    assert Source.of(b"").unit == "  "


def test_new_text_goes_after_blocks_that_close_and_before_those_that_open() -> None:
    text = b"a; } else { b; } c; if constexpr (x) { d; } e;"
    source = Source.of(text)
    assert source.after(2, text.index(b"c;")) == text.index(b" c;")
    assert source.after(text.index(b" if"), text.index(b"d;")) == text.index(b" if")
    assert source.after(text.index(b" if"), text.index(b"e;")) == text.index(b" if")


def test_reindent() -> None:
    assert reindent("if {\n    x;\n  }", "  ", "    ") == "if {\n      x;\n    }"
    assert reindent("a;\n\tb;", "\t", "") == "a;\nb;"
    assert reindent("a;\nlabel:", "  ", "    ") == "a;\nlabel:"


@given(st.lists(st.sampled_from(["alpha", "b", "(c + d)", "f(e, g)"]), min_size=1, max_size=60))
def test_broken_lines_are_short_and_say_the_same(words: list[str]) -> None:
    text = f"x = {' && '.join(words)};"
    broken = break_line(text, "  ")
    assert broken.replace("\n      ", " ") == text
    assert all(len(line) <= WIDTH for line in ("  " + broken).split("\n"))


def test_a_lambda_gets_lines_of_its_own() -> None:
    body = " && ".join(f"j <= i + {n}" for n in range(12))
    text = f"s = keep(s, at(q0, n * BN), [&](int i, int j) {{ return {body}; }});"
    lines = fit(text, "    ", "  ").split("\n")
    assert lines[0] == "s = keep(s, at(q0, n * BN), [&](int i, int j) {"
    assert lines[1].startswith("      return j <= i")
    assert lines[-1] == "    });"
    assert fit("short();", "", "  ") == "short();"
