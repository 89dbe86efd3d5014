"""What a recipe does to a score, as C++ in the words of a place."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import Name
from engine.cuir.parser import parse_expr as expr
from engine.cuir.rewrite import map_expr
from engine.errors import TransferError
from engine.foreign.probe.places import Place
from engine.graft.element import (
    AHEAD,
    FLOATED,
    SCORE,
    _added,
    _by_distance,
    _sum_of,
    beside,
    strength,
    sum_terms,
    write,
)
from engine.scalar_algebra.arrays import values_of
from engine.spec.recipes.recipe import Clause, Input, Recipe

CAUSAL = "j <= i + Nk - Nq"
SLOPES = Input("slopes", "extra", "f32", ("Hq",))
DOC = Input("doc", "extra", "i32", ("B", "Nk"))
SCALAR = Place(
    Path("flash.cu"), 0, 7, "flash", "sum", 1, "sum",
    {"b": "bx", "h": "by", "i": "i * Br + tx", "j": "j * Bc + y"},
    {"Nq": "N", "Nk": "N", "D": "d", "Hq": "gridDim.y"}, "1.0f", "    ",
    ("b", "h", "Nq", "Nk", "D"),
)  # fmt: skip
TILE = Place(
    Path("mask.h"), 0, 9, "compute", "acc_s", 32, "acc_s(@)",
    {"b": "bidb", "h": "bidh", "i": "m_block * 64 + @ / 16", "j": "n_block * 64 + @ % 16"},
    {"Nq": "params.seqlen_q", "Nk": "params.seqlen_k", "D": "params.d"},
    "params.scale", "  ", ("b", "h"),
)  # fmt: skip
NOWHERE = Place(Path("a.cu"), 0, 3, "f", "s", 1, "s", {})


def recipe(score: str = "x * rsqrt(D)", keep: str = CAUSAL, *inputs: Input) -> Recipe:
    heads = tuple(Input(n, n, "T", ("B", "Hq", "Nq", "D")) for n in ("q", "k", "v"))
    clauses = (Clause("softcap", ""), Clause("mask", ""))
    return Recipe("eager", (*heads, *inputs), expr(score), expr(keep), None, expr("h"),
                  ("B", "Hq", "Nq", "Dv"), "nan", clauses=clauses)  # fmt: skip


def text(made: Recipe, place: Place, source: str = "int N;", equal: bool = False) -> str:
    values = {"slopes": "params.slopes"} if place is TILE else {}
    return textwrap.dedent(write(made, place, source, values, "-INFINITY", equal).text).strip()


def test_a_mask_is_one_line_and_one_length_needs_no_difference() -> None:
    assert text(recipe(), SCALAR, equal=True) == textwrap.dedent("""\
        {
          const int key = j * Bc + y;
          const int row = i * Br + tx;
          if (key > row) sum = -INFINITY;
        }""")


def test_the_variables_of_the_source_are_used_where_they_hold_the_value() -> None:
    place = Place(Path("a.cu"), 0, 1, "f", "s", 1, "s", {"i": "row", "j": "col"}, signed=("i", "j"))
    window = recipe(keep="j <= i and j > i - 20")
    assert text(window, place) == "if (col > row || col <= row - 20) s = -INFINITY;"
    doc = Input("doc", "extra", "i32", ("Nk",))
    same = recipe("x * rsqrt(D)", "doc[i + Nk - Nq] == doc[j]", doc)
    assert text(same, replace(place, sizes={"Nq": "n"}), equal=True) == (
        "if (doc[min(row, int(n) - 1)] != doc[min(col, int(n) - 1)]) s = -INFINITY;"
    )


def test_what_is_no_signed_int_is_made_one() -> None:
    place = Place(Path("a.cu"), 0, 1, "f", "s", 1, "s", {"i": "row", "j": "col"}, signed=("j",))
    window = recipe(keep="j > i - 20")
    assert text(window, place, "int row;") == "if (col <= int(row) - 20) s = -INFINITY;"


def test_a_score_is_capped_in_the_unit_of_the_place() -> None:
    made = recipe("50.0 * tanh(x * rsqrt(D) / 50.0)")
    assert "sum = 50.0f * tanhf(sum / 50.0f);\n" in text(made, SCALAR)
    assert text(made, TILE, "int e;") == textwrap.dedent("""\
        {
          const int ahead = n_block * 64 + int(params.seqlen_q) - m_block * 64 - int(params.seqlen_k);
          #pragma unroll
          for (int e_ = 0; e_ < 32; ++e_) {
            const int own = e_ % 16 - e_ / 16;
            acc_s(e_) = 50.0f / params.scale * tanhf(acc_s(e_) * (params.scale / 50.0f));
            if (ahead + own > 0) acc_s(e_) = -INFINITY;
          }
        }""")  # fmt: skip  # noqa: E501


def test_only_names_of_ours_give_way_to_names_of_the_source() -> None:
    """The element is the source's own text: `e`, `i` and `n` there are its loop's counters."""
    own = replace(
        SCALAR,
        variable="s[n][e]",
        element="s[n][e]",
        coordinates={"b": "b", "h": "h", "i": "m0 + (e >> 1) * 8", "j": "i * 32 + x"},
    )
    made = recipe("50.0 * tanh(x * rsqrt(D) / 50.0)")
    source = "int e, n, i, x, row, key;"
    assert text(made, own, source, equal=True) == textwrap.dedent("""\
        {
          const int key_ = i * 32 + x;
          const int row_ = m0 + (e >> 1) * 8;
          s[n][e] = 50.0f * tanhf(s[n][e] / 50.0f);
          if (key_ > row_) s[n][e] = -INFINITY;
        }""")
    rows = replace(
        own,
        elements=2,
        element="s[n][e][@]",
        coordinates={**own.coordinates, "i": "m0 + e + @ * 8"},
    )
    capped = text(made, rows, source, equal=True)
    assert "for (int e_ = 0; e_ < 2; ++e_) {" in capped
    assert "s[n][e][e_] = 50.0f * tanhf(s[n][e][e_] / 50.0f);" in capped
    assert "const int ahead = i * 32 + x - m0 - e;" in capped
    assert "const int own = -e_ * 8;" in capped


def test_names_of_the_spec_s_inputs_are_not_hidden_by_ours_nor_taken_for_a_score() -> None:
    row = Input("row", "extra", "f32", ())
    s = Input("s", "extra", "f32", ())
    added = recipe("x * rsqrt(D) + row * s", CAUSAL, row, s)
    assert text(added, SCALAR, equal=True) == textwrap.dedent("""\
        {
          const int key = j * Bc + y;
          const int row_ = i * Br + tx;
          sum += row * s;
          if (key > row_) sum = -INFINITY;
        }""")


def test_inputs_are_read_where_they_were_brought() -> None:
    bias = recipe("x * rsqrt(D) + slopes[h] * (j - i - Nk + Nq)", CAUSAL, SLOPES)
    assert "sum += slopes[by] * (key - row);" in text(bias, SCALAR, equal=True)
    words = "acc_s(e) += params.slopes[bidh] / params.scale * (float(ahead) + own);"
    assert words in text(bias, TILE)
    whole = write(
        bias, TILE, "", {"slopes": "params.slopes"}, "-INFINITY", False, folded=False
    ).text
    assert (
        "acc_s(e) = (acc_s(e) * params.scale + params.slopes[bidh] * (float(ahead) + own))"
        " / params.scale;"
    ) in whole
    documents = recipe("x * rsqrt(D)", "doc[b, i] == doc[b, j]", DOC)
    words = "if (doc[bx * N + min(row, N - 1)] != doc[bx * N + min(key, N - 1)]) sum"
    assert words in text(documents, SCALAR)


def test_minus_infinity_stays_where_the_source_has_it() -> None:
    """A sum keeps it; to another score a product is added that is nothing beside a number."""

    def kept(score: str, place: Place, keep: str = "True", folded: bool = True) -> str:
        made = recipe(score, keep, SLOPES, DOC)
        return write(made, place, "", {}, "-INFINITY", True, folded, infinite=True).text

    cap, bias = "50.0 * tanh(x * rsqrt(D) / 50.0)", "x * rsqrt(D) + slopes[h] * (j - i)"
    assert "sum = fmaf(sum, 0x1p-126f, 50.0f * tanhf(sum / 50.0f));" in kept(cap, SCALAR)
    assert "sum += slopes[by] * (key - row);" in kept(bias, SCALAR)
    assert "fmaf" not in kept(bias, TILE, folded=False)
    assert "fmaf" in kept(cap, TILE, "doc[b, i] == doc[b, j]")  # beside a mask of ours, too


@pytest.mark.parametrize(
    ("keep", "equal", "left"),
    [
        (CAUSAL, False, "True"),
        (f"{CAUSAL} and doc[b, i] == doc[b, j]", False, "doc[b, i] == doc[b, j]"),
        ("j <= i and doc[b, i] == doc[b, j]", True, "doc[b, i] == doc[b, j]"),
        ("j <= i and doc[b, i] == doc[b, j]", False, None),  # of other rows
        ("j < 8 or j <= i + Nk - Nq", False, None),  # keeps some that the source drops
        ("doc[b, i] == doc[b, j]", False, None),
    ],
)
def test_what_the_source_drops_itself_is_not_left(keep: str, equal: bool, left: str | None) -> None:
    found = beside(recipe(keep=keep), recipe(), equal)
    assert (None if found is None else found.keep) == (None if left is None else expr(left))
    assert beside(recipe(keep=keep), recipe(keep="True"), equal) is None


def test_loads_come_first_where_that_is_the_other_text() -> None:
    made = recipe("x * rsqrt(D)", "j <= i and doc[i] == doc[j]", replace(DOC, dims=("Nk",)))
    texts = [write(made, TILE, "", {}, "-INFINITY", True, folded=f).text for f in (True, False)]
    row, key = (f"doc[min({at}, int(params.seqlen_q) - 1)]" for at in ("row", "key"))
    assert f"if (key > row || {row} != {key}) " in texts[0]
    row, key = (f"({at} < int(params.seqlen_q) ? doc[{at}] : 0)" for at in ("row", "key"))
    assert f"if ({row} != {key} || key > row) " in texts[1]


@pytest.mark.parametrize(
    ("index", "written"),
    [
        ("j", "min(j, N - 1)"),
        ("i + Nk - Nq", "max(min(i + N - N, N - 1), 0)"),  # rows may begin before the first key
        ("i - j + 8", "max(min(i - j + 8, N - 1), 0)"),
        ("i + 1", "min(i + 1, N - 1)"),
        ("h", "by"),  # no tile goes past the last head
    ],
)
def test_nothing_is_read_behind_the_last_element(index: str, written: str) -> None:
    """Where a tile's rows or keys go on behind the last ones."""
    signed = ("h", "i", "j", "Nq", "Nk")
    place = replace(SCALAR, coordinates={"h": "by", "i": "i", "j": "j"}, signed=signed)
    made = recipe(f"x * rsqrt(D) + doc[{index}]", "True", replace(DOC, dtype="f32", dims=("Nk",)))
    assert f"doc[{written}]" in text(made, place)
    bare = replace(place, sizes={"Nq": "N"})
    other = write(made, place, "", {}, "-INFINITY", False, folded=False).text
    assert f"doc[{written}]" in other or index in ("j", "i + 1")
    if index == "j":  # where nothing in scope is their number it stays, but for one length of both
        assert "doc[j]" in text(made, bare) and "doc[min(j, N - 1)]" in text(made, bare, equal=True)
        assert "(j < N ? doc[j] : 0)" in other


def test_of_many_scores_the_distance_is_kept_alone() -> None:
    window = text(recipe("x * rsqrt(D)", "i - j < 40 and j <= i"), TILE)
    assert "if (ahead + own <= -40 || ahead + own > 0) acc_s(e) = -INFINITY;" in window
    assert "row" not in window and "seqlen" not in window
    block = text(recipe("x * rsqrt(D)", "j <= i and j // 64 == i // 64"), TILE)
    assert "const int key = first_key + e % 16;" in block and "ahead" not in block


def test_a_coordinate_that_is_no_sum_stays_whole() -> None:
    odd = replace(TILE, coordinates={**TILE.coordinates, "j": "n_block << 6 | @ % 16"})
    window = text(recipe("x * rsqrt(D)", "i - j < 40"), odd)
    assert "const int ahead = -m_block * 64;" in window
    assert "const int own = (n_block << 6 | e % 16) - e / 16;" in window
    both = replace(odd, coordinates={**odd.coordinates, "i": "m_block << 6 | @ / 16"})
    window = text(recipe("x * rsqrt(D)", "i - j < 40"), both)
    assert "  const int ahead = (n_block << 6 | e % 16) - (m_block << 6 | e / 16);" in window
    assert "if (ahead <= -40) acc_s(e) = -INFINITY;" in window


@given(*[st.integers(0, 300)] * 2, *[st.integers(1, 300)] * 2)
def test_the_distance_says_the_same(i: int, j: int, rows: int, keys: int) -> None:
    at = {"i": i, "j": j, "Nq": rows, "Nk": keys}
    for words in ("i + 7 >= j - Nk + Nq", "3 > i - j", "2 * j > i", "j - i + Nq == Nk + 4",
                  "(i - j) * 2 + Nq > 9", "i > 4", "0.5 * (j - i - Nk + Nq) > -2.0"):  # fmt: skip
        (made,), at_end = _by_distance(expr(words))
        ahead = j - i - (keys - rows if at_end else 0)
        names = at | {AHEAD.id: ahead, FLOATED.id: float(ahead)}
        assert made is not None and values_of(made, names) == values_of(expr(words), at)


@given(st.recursive(st.sampled_from(["s", "a", "b * i", "j"]),
                    lambda e: st.tuples(e, st.sampled_from("+-*"), e).map(" ".join)))  # fmt: skip
def test_what_is_added_is_the_rest(words: str) -> None:
    score = map_expr(expr(words), lambda node: SCORE if node == Name("s") else None)
    added = _added(score)
    if added is not None:
        at = {SCORE.id: 3.0, "a": 0.25, "b": 2.0, "i": 5, "j": 7}
        assert values_of(score, at) == 3.0 + values_of(added, at)


@given(st.lists(st.tuples(st.sampled_from("+-"), st.sampled_from(["a", "b * 2", "f(a + b)"])),
                min_size=1))  # fmt: skip
def test_a_sum_is_taken_apart_and_put_together(terms: list[tuple[str, str]]) -> None:
    text = _sum_of(terms)
    values = {"a": 3, "b": 5, "f": lambda x: 7 * x}
    value = {term: eval(term, values) for _, term in terms}
    assert eval(text, values) == sum(value[t] if s == "+" else -value[t] for s, t in terms)
    assert [t.removeprefix("-") for _, t in sum_terms(text)] == [
        t for _, t in sorted(terms, key=lambda t: t[0] == "-")
    ]


def test_another_scale_is_of_the_bare_product() -> None:
    assert "sum = sum * sqrtf(d) * 0.1f;" in text(recipe("x * 0.1"), SCALAR, "int d;")


def test_nothing_is_written_where_nothing_is_asked_for() -> None:
    assert text(recipe(keep="True"), SCALAR) == ""


@pytest.mark.parametrize(
    ("made", "place", "words"),
    [
        (recipe("sigmoid(x)", "b == 0"), TILE, ""),
        (recipe(keep="D == 4"), NOWHERE, "nothing in scope"),
    ],
)
def test_what_has_no_writing_is_refused_with_its_line(
    made: Recipe, place: Place, words: str
) -> None:
    if not words:
        assert "1.0f / (1.0f + expf(-" in text(made, place)
        return
    with pytest.raises(TransferError, match=f"a.cu:3: {words}"):
        text(made, place)


@pytest.mark.parametrize(
    ("text", "bound"),
    [("p->n", 14), ("s[a][b]", 14), ("f(x)", 14), ("n0-1", 10), ("a>b", 0), ("a-b->n", 10)],
)
def test_how_tightly_a_text_binds(text: str, bound: int) -> None:
    assert strength(text) == bound
