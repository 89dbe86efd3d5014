"""Safe text, columns and highlighting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygments.lexers import get_lexer_by_name

from cubridge_tui.text.cells import shown, shown_column, split_lines
from cubridge_tui.text.highlight import Highlighter, coloured, lexer_for
from cubridge_tui.text.sanitise import one_line, visible, visible_lines
from engine.cuir.printer import print_module
from engine.lift import lift, load_package
from engine.resources import kernel_dir, kernels_dir

ANY = st.text(st.characters(codec=None), max_size=60)


@given(ANY)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    line = visible(text)
    assert len(line) == len(text)
    assert all(ord(c) >= 0x20 and not 0x7F <= ord(c) < 0xA0 for c in line)
    assert not set(line) & set("\u202e\u202d\u2066\u2067\u200b\u200d\ufeff\u2028\u2029")
    line.encode("utf-8")


@given(st.text(st.sampled_from("ab\t日é\x1b[]/"), max_size=40))
def test_a_column_stands_behind_what_is_shown_before_it(line: str) -> None:
    for column in range(len(line) + 1):
        assert shown_column(line, column) == len(shown(line[:column]))
    assert "\t" not in shown(line)


@given(ANY)
def test_lines_end_at_lf_only_and_lose_nothing(text: str) -> None:
    lines = split_lines(text)
    whole = "\n".join(lines)
    if lines and "\r" in text:
        assert whole.replace("\r", "") == text.removesuffix("\n").replace("\r", "")
    else:
        assert whole == text.removesuffix("\n")


def test_words_on_one_line() -> None:
    assert one_line("a\n\tb\x1b") == "a  b␛"
    assert one_line("abcdef", 4) == "abc…"
    assert visible_lines("a\r\nb\x07") == ["a", "b␇"]


def kinds(text: str, language: str) -> list[list[tuple[str, str]]]:
    lines = text.split("\n")
    made = Highlighter(lambda i: lines[i], language)
    return [
        [(line[s.start : s.end], s.kind) for s in made.spans(i)] for i, line in enumerate(lines)
    ]


def test_cuir_is_told_apart() -> None:
    line = kinds("    s = keep(s, lambda i, j: j < args.Nk, at=[q0, 1])  #@s3", "cuir")[0]
    assert ("keep", "op") in line and ("lambda", "keyword") in line
    assert ("Nk", "attribute") in line and ("1", "number") in line and ("#@s3", "id") in line
    assert ("flash_fwd", "function") in kinds("def flash_fwd(args):", "cuir")[0]


def test_all_of_a_lifted_kernel_is_lexed_without_an_error() -> None:
    text = print_module(lift(load_package(kernel_dir("flash_fwd_sm90"))).module)
    assert all(kind for line in kinds(text, "cuir") for _, kind in line)


def test_a_comment_over_many_lines_stays_one_wherever_it_is_opened() -> None:
    body = "\n".join(["int a; /* begin", *["inside = 1;"] * 12, "end */ int b;"])
    found = kinds(body, "cuda")
    assert found[9] == [("inside = 1;", "comment")]
    assert ("int", "type") in found[-1] and ("end */", "comment") in found[-1]
    assert kinds("// not /* open\nint c;", "cuda")[1][0] == ("int", "type")


def test_an_unknown_language_is_plain_text() -> None:
    assert kinds("int a;", "no-such-language") == [[]]


def test_a_directive_that_goes_on_is_one_to_its_end() -> None:
    found = kinds("#define A(x) \\\n  f(x); \\\n  g(x)\nint b;", "cuda")
    assert [{kind for _, kind in line} for line in found[:3]] == [{"preproc"}] * 3
    assert ("int", "type") in found[3]


def _by_character(lexer: Any, text: str) -> list[str]:
    out = [""] * len(text)
    for start, end, kind in coloured(lexer, text):
        for at in range(start, end):
            out[at] = kind if not text[at].isspace() else ""
    return out


def test_cuda_is_coloured_as_pygments_own_lexer_does() -> None:
    """All kernels and primitives, character by character; the differences are known ones."""
    theirs = get_lexer_by_name("cuda", stripnl=False, ensurenl=False)
    ours = lexer_for("cuda")
    known = {
        ("number", "operator"): "a sign is an operator, also before a number",
        ("keyword", ""): "`thread` is a name like any other",
        ("decorator", ""): "the name behind `namespace` is a name like any other",
        ("function", ""): "a few definitions, those that its pattern finds",
        ("comment", "preproc"): "an included file's name",
        ("", "number"): "1ll",
    }
    count = 0
    for path in sorted(kernels_dir().rglob("*.cu*")):
        text = path.read_text(encoding="utf-8")
        count += len(text)
        pairs = zip(_by_character(theirs, text), _by_character(ours, text), strict=True)
        for index, (a, b) in enumerate(pairs):
            assert a == b or (a, b) in known, (path.name, a, b, text[max(index - 40, 0) : index])
    assert count > 100_000


@pytest.mark.parametrize(
    ("text", "kind", "of"),
    [
        ('auto s = R"x(a "quoted" // text)x";', "string", 'R"x(a "quoted" // text)x"'),
        ('s = u8"a\\"b" + c;', "string", 'u8"a\\"b"'),
        ("c = '\\'';", "string", "'\\''"),
        ("n = 1'000'000ull;", "number", "1'000'000ull"),
        ("x = .5e-3f;", "number", ".5e-3f"),
        ("a /* b */ / c", "comment", "/* b */"),
        ("a // b \\\n c", "comment", "// b \\"),
        ("#define A(x) x / 2 // why", "preproc", "#define A(x) x / 2 "),
        ("#define A(x) x / 2 // why", "comment", "// why"),
        ("struct Args {", "type", "Args"),
        ("kernel<<<grid, block>>>(a);", "operator", "<<<"),
        ('"never closed', "string", '"never closed'),
        ("int a; /* never closed", "comment", "/* never closed"),
    ],
)
def test_tokens_of_cuda(text: str, kind: str, of: str) -> None:
    assert (of, kind) in [pair for line in kinds(text, "cuda") for pair in line]
