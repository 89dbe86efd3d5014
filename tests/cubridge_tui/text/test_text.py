"""Safe text, columns and highlighting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cubridge_tui.text.cells import raw_column, shown, shown_column, split_lines
from cubridge_tui.text.highlight import CHUNK, Highlighter
from cubridge_tui.text.sanitise import one_line, visible, visible_lines
from engine.cuir.printer import print_module
from engine.lift import lift, load_package
from engine.resources import kernel_dir

ANY = st.text(st.characters(codec=None), max_size=60)


@given(ANY)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    line = visible(text)
    assert len(line) == len(text)
    assert all(ord(c) >= 0x20 and not 0x7F <= ord(c) < 0xA0 for c in line)
    assert not set(line) & set("\u202e\u202d\u2066\u2067\u200b\u200d\ufeff\u2028\u2029")
    line.encode("utf-8")


@given(st.text(st.sampled_from("ab\t日é\x1b[]/"), max_size=40))
def test_columns_go_there_and_back(line: str) -> None:
    for column in range(len(line) + 1):
        assert raw_column(line, shown_column(line, column)) == column
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
    made = Highlighter(len(lines), lambda i: lines[i], language)
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
    body = "\n".join(["int a; /* begin", *["inside = 1;"] * (3 * CHUNK), "end */ int b;"])
    found = kinds(body, "cuda")
    assert found[2 * CHUNK + 1] == [("inside = 1;", "comment")]
    assert ("int", "type") in found[-1] and ("end */", "comment") in found[-1]
    assert kinds("// not /* open\nint c;", "cuda")[1][0] == ("int", "type")


def test_an_unknown_language_is_plain_text() -> None:
    assert kinds("int a;", "no-such-language") == [[]]
