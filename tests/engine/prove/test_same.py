"""Two predicates are proven the same, or told apart by the smallest pair."""

from __future__ import annotations

import pytest

from engine.cuir.parser import parse_expr
from engine.prove.same import same_predicate
from engine.prove.solver import Proven, Unknown, Witness
from engine.spec import read

SAME = [
    ("j <= i + (Nk - Nq)", "j + Nq <= i + Nk"),
    ("j // 64 <= i // 64", "floor_div(j, 64) * 64 <= i"),
    ("not (j > i or i - j > 1023)", "j <= i and j >= i - 1023"),
    ("j < Nk", "True"),
    ("doc[b, i] == doc[b, j] and j <= i", "j <= i and doc[b, j] - doc[b, i] == 0"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_is_proven(one: str, other: str) -> None:
    assert isinstance(same_predicate(parse_expr(one), parse_expr(other)), Proven)


@pytest.mark.parametrize(
    ("one", "other", "at"),
    [
        ("j <= i", "j < i", {"Nq": 1, "Nk": 1, "i": 0, "j": 0}),
        ("i - j <= 1023", "i - j < 1023", {"Nq": 1024, "Nk": 1, "i": 1023, "j": 0}),
        ("doc[b, i] == doc[b, j]", "doc[b, i] == doc[b, 0]", {"i": 0, "j": 1}),
    ],
)
def test_what_differs_has_a_smallest_pair(one: str, other: str, at: dict[str, int]) -> None:
    found = same_predicate(parse_expr(one), parse_expr(other))
    assert isinstance(found, Witness) and {n: found.values[n] for n in at} == at


def test_floats_are_not_decided() -> None:
    found = same_predicate(parse_expr("j * 0.5 < i"), parse_expr("j < 2 * i"))
    assert isinstance(found, Unknown)
    flags = same_predicate(parse_expr("ok[b, j]"), parse_expr("ok[b, j] and j < Nk"), ("ok",))
    assert isinstance(flags, Proven)


def test_a_wrong_simplification_of_a_mask_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = parse_expr("not j > i + (Nk - Nq)")
    assert read._simplified(mask, {}) == parse_expr("j <= i + Nk - Nq")
    monkeypatch.setattr(read, "canonical_predicate", lambda *_: parse_expr("j < i + Nk - Nq"))
    assert read._simplified(mask, {}) == mask
