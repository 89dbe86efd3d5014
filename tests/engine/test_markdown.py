"""Text of others in Markdown, as a renderer shows it: what it said, nothing but text and code."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from engine.markdown import cell, code, flat, prose, wrapped

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
WORDS = st.text(st.sampled_from("ab `|\\*_<>[]#~()!&;:/1.-+\n\t\x1b\u2028"), max_size=16)


def shown(markdown: str) -> tuple[str, set[str]]:
    """The text that is rendered, and the tags."""
    made = RENDERER.renderInline(markdown)
    return html.unescape(re.sub(r"</?code>", "", made)), set(re.findall(r"<(\w+)", made))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("`and` and `or` branch", "<code>and</code> and <code>or</code> branch"),
        ("run `cubridge verify my_session`", "run <code>cubridge verify my_session</code>"),
        ("a `b", "a `b"),
        ("``two``", "``two``"),
        ("a_b * c_d", "a_b * c_d"),
        ("x &lt; y", "x &amp;lt; y"),
    ],
)
def test_what_stands_between_backticks_is_code_and_all_else_is_text(text: str, wanted: str) -> None:
    assert RENDERER.renderInline(prose(text)) == wanted


def test_nothing_in_code_is_escaped() -> None:
    assert code("my_spec[1].py") == "`my_spec[1].py`"
    assert code("a`b``c") == "``` a`b``c ```"


@pytest.mark.parametrize(
    "text",
    ["flash_fwd_sm80 on q[B, Hq, Nq, D]; keep j <= i + Nk - Nq", "50.0 * tanh(x * s)", "a # b > c"],
)
def test_what_is_no_markup_is_read_as_it_is_in_the_file_too(text: str) -> None:
    assert prose(text) == text


# Where others' text stands: alone, in a list, in a heading, between our own words.
FORMS = {"{}": {"p"}, "- x\n- {}\n": {"ul", "li"}, "# {}": {"h1"}, "x ({}): y": {"p"}}


@given(WORDS)
def test_prose_has_no_markup_but_code(text: str) -> None:
    for form, tags in FORMS.items():
        made = RENDERER.render(form.format(prose(text)))
        assert set(re.findall(r"<(\w+)", made)) <= tags | {"code"}
    said, _ = shown(prose(text))
    assert said.replace("`", "").split() == flat(text).replace("`", "").split()


@given(WORDS.filter(lambda text: bool(flat(text).strip())))
def test_code_shows_exactly_the_text(text: str) -> None:
    assert shown(code(text)) == (flat(text), {"code"})


@given(WORDS)
def test_a_cell_stays_one_cell(text: str) -> None:
    made = RENDERER.render(f"| a |\n|---|\n| x{cell(text)} |")
    assert (made.count("<tr>"), made.count("<td>")) == (2, 1)
    assert set(re.findall(r"<(\w+)", made)) <= {"table", "thead", "tbody", "tr", "th", "td", "code"}


SIGNS = ("-", "+", "*", ">", "#", "##", "1.", "12)", "=", "---", "|", "<b>", "a", "b_c", "`j`")


@given(st.lists(st.sampled_from(SIGNS), max_size=12), st.integers(1, 12))
def test_where_a_line_is_wrapped_nothing_begins_a_block(words: list[str], width: int) -> None:
    """`i + Nk - Nq` broken before its minus would be a list."""
    line = f"- {prose(' '.join(['x', *words]))}"
    made = wrapped(line, width, "  ")
    assert " ".join(made.split()) == " ".join(line.split())
    assert RENDERER.render(made).split() == RENDERER.render(line).split()


def test_lines_are_as_wide_as_they_may_be() -> None:
    assert wrapped("- aa bb cc dd", 7, "  ") == "- aa bb\n  cc dd"
    assert wrapped("aa - bb", 4) == "aa -\nbb"
