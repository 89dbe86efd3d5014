"""The cases that a kernel is run in: as a person gave them, and what is added."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from engine.errors import InputError
from engine.foreign.cases import Case, cases_of, complete, refuse_too_large, unlike, usual_cases
from engine.foreign.launcher import read_launcher
from engine.foreign.reference import Reference
from engine.spec.python.signature import Signature

POINTERS = "const float* q, const float* k, const float* v, float* o, "
APART = read_launcher(
    f"void launch({POINTERS}int batch, int Hq, int Hkv, int len_q, int len_k, int D, bool causal) "
    "{}",
    "a.cu", "launch", {}, "f32", sizes=("causal",),
)  # fmt: skip
ONE = read_launcher(
    f"void launch({POINTERS}int B, int Hq, int N, int D) {{}}", "a.cu", "launch", {}, "f32"
)
ANY = Reference(Path("any.py"), Signature((), ("B", "Hq", "Nq", "D")), None, {})
SQUARE = {"B": 1, "Hq": 2, "Hkv": 2, "Nq": 16, "Nk": 16, "D": 8, "causal": 1}


def test_a_flag_alone_keeps_the_usual_cases() -> None:
    usual = usual_cases(APART, 64, None)
    assert [c.sizes for c in cases_of(APART, [{"causal": 1}], ("random",), 64, None)] == [
        {**c.sizes, "causal": 1} for c in usual
    ]
    narrow = cases_of(APART, [{"D": 32, "causal": 0}], ("random",), 64, None)
    assert {c.sizes["D"] for c in narrow} == {32} and len(narrow) == len(usual)
    assert cases_of(APART, [], ("random",), 64, None) == usual
    kinds = cases_of(APART, [SQUARE], ("random", "peaked"), 64, None)
    assert [(c.sizes, c.values) for c in kinds] == [(SQUARE, "random"), (SQUARE, "peaked")]
    named = {"len_q": 16, "len_k": 16, **{n: s for n, s in SQUARE.items() if n not in ("Nq", "Nk")}}
    (case,) = cases_of(APART, [named], ("random",), 64, None)
    assert complete(APART, case.sizes)["Nk"] == 16


def test_the_usual_cases_hold_the_lengths_at_which_bounds_are_missed() -> None:
    """Of tiles and blocks of 16 to 128: the first key of a last tile that one row alone sees, rows
    with and without keys in one block, a key or a row more than whole ones; N alone likewise."""
    pairs = [(c.sizes["Nq"], c.sizes["Nk"]) for c in usual_cases(APART, 64, ANY)]
    assert any(n_q % 128 == 0 and (n_k - n_q) % 128 == 1 for n_q, n_k in pairs)
    assert any(n_q > n_k and all((n_q - n_k) % n for n in (4, 8, 16)) for n_q, n_k in pairs)
    assert any(n_q == n_k and n_q % 128 == 0 for n_q, n_k in pairs)
    assert any(n_k % 128 == 1 for _, n_k in pairs) and any(n_q % 128 == 1 for n_q, _ in pairs)
    assert any(1 < n_q % 16 < 16 and n_q > 16 for n_q, _ in pairs)
    one = {c.sizes["Nq"] % 128 for c in usual_cases(ONE, 64, ANY)}
    assert {0, 1} < one
    alone = [(c.sizes["Nq"], c.sizes["Nk"]) for c in usual_cases(APART, 64, None)]
    assert any(n_q % 128 == 1 for n_q, _ in alone) and any(n_k % 128 == 1 for _, n_k in alone)


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(InputError, match="launch has no size head") as caught:
        cases_of(APART, [{**SQUARE, "head": 3}], ("random",), 64, None)
    assert "batch, Hq, Hkv, len_q, len_k, D, causal" in (caught.value.fix or "")


def test_a_case_that_is_too_large_is_refused() -> None:
    large = Case({"B": 1, "Hq": 1, "N": 1 << 20, "D": 8})
    refuse_too_large(ONE, large, compared=False)
    with pytest.raises(
        InputError, match=r"8,192.0 GiB for the reference's scores: more than the 1"
    ):
        refuse_too_large(ONE, large, compared=True)
    larger = Case({**large.sizes, "N": 1 << 24})
    with pytest.raises(InputError, match=r"N 16777216, D 8 needs 2.0 GiB for its tensors: more"):
        refuse_too_large(ONE, larger, compared=False)


def test_half_a_case_is_answered_with_a_whole_one_that_can_be_typed() -> None:
    with pytest.raises(InputError, match="no size for D, Dv, Hkv, Hq, causal") as caught:
        complete(APART, {"Nq": 40})
    words = shlex.split((caught.value.fix or "").split("--sizes ")[1])[0].split()
    given = {name: int(size) for name, size in (word.split("=") for word in words)}
    assert given["Nq"] == given["Nk"] == 40 and given["D"] == 64 and given["causal"] == 1
    complete(APART, given)


def test_a_case_is_added_that_tells_apart_what_all_others_have_alike() -> None:
    def allowed(sizes: object) -> bool:
        return True

    added = unlike(APART, [Case(SQUARE)], allowed)
    assert added is not None
    assert added.sizes == {**SQUARE, "Nk": 32, "Hq": 4}
    assert unlike(APART, [Case(SQUARE), added], allowed) is None
    other = unlike(APART, [Case(SQUARE)], lambda s: s["Nk"] <= s["Nq"])
    assert other is not None and other.sizes["Nq"] == 32  # what the reference allows
    assert (
        unlike(APART, [Case(SQUARE)], lambda s: s["Nk"] == s["Nq"] and s["Hq"] == s["Hkv"]) is None
    )
    assert unlike(ONE, [Case({"B": 1, "Hq": 2, "N": 16, "D": 8})], allowed) is None
