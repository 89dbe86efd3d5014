"""Sizes that show both sides of what a recipe asks for."""

from __future__ import annotations

from typing import Any

import pytest

from engine.cuir.parser import parse_expr as expr
from engine.cuir.printer import print_expr
from engine.errors import InputError
from engine.foreign.launcher import read_launcher
from engine.foreign.probe.places import Hook
from engine.gates.outcome import Found
from engine.graft.cases import cases_for, empty_rows, reaching, sides_not_taken
from engine.graft.judge import Ran, judge_cases, shorter_than
from engine.spec.recipes.recipe import Input, Recipe

TENSORS = dict.fromkeys("qkvo", "B Hq N D")
LAUNCHER = read_launcher(
    "void launch(const float* q, const float* k, const float* v, float* o, int B, int Hq, int N, "
    "int D, float scale, cudaStream_t stream) {}", "a.cu", "launch", TENSORS, "f32",
)  # fmt: skip
CASE = {"B": 1, "Hq": 2, "N": 64, "D": 16}


def recipe(keep: str = "True", score: str = "x * rsqrt(D)") -> Recipe:
    heads = tuple(Input(n, n, "T", ("B", "Hq", "Nq", "D")) for n in ("q", "k", "v"))
    return Recipe("eager", heads, expr(score), expr(keep), None, expr("h"),
                  ("B", "Hq", "Nq", "Dv"), "nan")  # fmt: skip


def test_each_place_is_reached_by_a_case() -> None:
    probed = {"B": 2, "Hq": 2, "Hkv": 2, "N": 128, "Nq": 128, "Nk": 128, "D": 16}
    hook = Hook((), 1.0, 1.0, 1, "", probed=probed)
    other = Hook((), 1.0, 1.0, 1, "", {**CASE, "D": 32}, {**probed, "N": 192, "Nq": 192, "Nk": 192})
    assert reaching([hook], [CASE]) == [CASE, {**CASE, "N": 128}]
    assert reaching([hook], [{**CASE, "N": 160}]) == [{**CASE, "N": 160}]
    small = {**CASE, "N": 32, "D": 32}  # it launches another kernel
    assert reaching([hook], [CASE, small])[2] == {**CASE, "N": 128}
    longer = {**CASE, "N": 256, "D": 32}
    assert reaching([hook], [CASE, longer])[2] == {**CASE, "N": 128}
    assert reaching([hook, other], [CASE])[2] == {**CASE, "N": 192, "D": 32}
    again = {**probed, "Nq": 96, "Nk": 160, "Hq": 4}
    apart = Hook((), 1.0, 1.0, 1, "", again=again)  # what probing told apart, a case does, too
    square = {"B": 1, "Hq": 2, "Hkv": 2, "Nq": 64, "Nk": 64, "D": 16}
    assert reaching([apart], [square]) == [square, {**square, "Nk": 128, "Hq": 4}]
    assert reaching([apart], [{**square, "Nk": 96, "Hkv": 1}]) == [{**square, "Nk": 96, "Hkv": 1}]
    assert reaching([Hook((), 1.0, 1.0, 1, "")], [CASE]) == [
        CASE
    ]  # kept before it was written down


@pytest.mark.parametrize(
    ("made", "keys"),
    [
        (recipe(), []),
        (recipe("j <= i"), []),
        (recipe("floor_div(j, 16) < 8"), [256]),
        (recipe("(j - 200) // 100 < 0 or floor_mod(j, 7) == 3"), [128]),
        (recipe("j > i - 64 and j <= i"), [128]),
        (recipe(score="x * 0.5 if i - j > 128 else x"), [256]),
        (recipe(score="x + max(j - 200, 0)"), [256]),
        (recipe("j < 100 or j // 64 == 5"), [128, 512]),
        (recipe("i - j <= 100 or j <= 30"), [256]),
    ],
)
def test_keys_are_doubled_until_both_sides_are_taken(made: Recipe, keys: list[int]) -> None:
    first, *more = cases_for(made, LAUNCHER, [CASE])
    assert first == CASE
    assert [c["N"] for c in more] == keys
    assert not sides_not_taken(made, LAUNCHER, [first, *more])


def test_heads_are_doubled_and_what_is_never_taken_is_left() -> None:
    assert [c["Hq"] for c in cases_for(recipe("h < 5"), LAUNCHER, [CASE])] == [2, 8]
    never = recipe("j <= i", "x if j <= i else x * 2.0")  # a pair that is not kept has no score
    left = sides_not_taken(never, LAUNCHER, cases_for(never, LAUNCHER, [CASE]))
    assert [print_expr(side) for side, _ in left] == []
    never = recipe("j < 5", "x if j < 9 else x * 2.0")
    (case,) = cases_for(never, LAUNCHER, [CASE])
    assert [print_expr(s) for s, _ in sides_not_taken(never, LAUNCHER, [case])] == ["j >= 9"]


def test_a_side_beyond_what_is_executed_is_refused() -> None:
    with pytest.raises(InputError, match=r"no case of at most 4096 keys .* where j >= 5000"):
        cases_for(recipe("j < 5000"), LAUNCHER, [CASE])


def test_a_needed_case_that_was_skipped_is_no_pass() -> None:
    rows: list[dict[str, Any]] = [
        {"case": "N 64", "sizes": CASE, "compared": True},
        {"case": "N 128", "sizes": {**CASE, "N": 128}, "compared": False, "skipped": "all nan"},
    ]
    ran = Ran(Found(True, "equal", {"cases": rows}), {}, 0, 0.0)
    found = judge_cases(ran, recipe("j < 100"), LAUNCHER, [CASE]).found
    assert not found.ok
    assert found.reason == (
        "no case that was run shows what it does where j >= 100; not compared: N 128 (all nan)"
    )
    found = judge_cases(ran, recipe("j < 9"), LAUNCHER, [CASE]).found  # added for heads, say
    assert found.reason == "a case that the spec needs was not compared: N 128 (all nan)"
    assert judge_cases(ran, recipe("j < 9"), LAUNCHER, [r["sizes"] for r in rows]).found.ok
    one = judge_cases(ran, recipe("j < 9"), LAUNCHER, [CASE], [r["sizes"] for r in rows])
    assert one.found.ok and one.not_reached == "not compared: N 128 (all nan)"  # for a place
    rows[1]["compared"] = True
    one = judge_cases(ran, recipe("j < 9"), LAUNCHER, [CASE], [r["sizes"] for r in rows])
    assert one.found.ok and not one.not_reached
    assert judge_cases(ran, recipe("j < 100"), LAUNCHER, [CASE]).found.reason == "equal"
    size = judge_cases(ran, recipe("j < 100 or D > 64"), LAUNCHER, [CASE]).found
    assert size.ok and size.reason == "equal; not run: where D > 64"


def test_sizes_that_another_verdict_lists_are_not_listed_again() -> None:
    first, second, third = (
        {"case": f"N {n}", "sizes": {**CASE, "N": n}, "compared": True} for n in (64, 128, 256)
    )
    found = Found(True, "equal at: N 64; N 128; on", {"cases": [first, second]})
    assert shorter_than(found, [first, second]).reason == "equal at: the same 2 cases; on"
    assert shorter_than(found, [second]).reason == "equal at: the same case; N 64; on"
    for other in ([], [first, third], [{**first, "compared": False}]):
        assert shorter_than(found, other) == found


def test_what_one_kernel_of_several_did_not_show_is_named() -> None:
    rows: list[dict[str, Any]] = [
        {"case": "N 64", "sizes": CASE, "compared": True, "kernels": ["brief"]},
        {"case": "N 128", "sizes": {**CASE, "N": 128}, "compared": True, "kernels": ["long"]},
    ]
    ran = Ran(Found(True, "equal", {"cases": rows}), {}, 0, 0.0)
    found = judge_cases(ran, recipe("j < 100"), LAUNCHER, [CASE]).found
    assert found.ok and found.reason == "equal; not run in brief: where j >= 100"


@pytest.mark.parametrize(
    ("keep", "rows", "keys", "may"),
    [
        ("j <= i + Nk - Nq", 64, 64, False),
        ("j <= i + Nk - Nq", 64, 48, True),
        ("h != 1 or j > i", 8, 9, False),
        ("h != 1 or j > i", 8, 8, True),
        ("doc[i] == doc[j]", 8, 8, True),  # data says it
    ],
)
def test_rows_that_may_keep_no_key(keep: str, rows: int, keys: int, may: bool) -> None:
    sizes = {"B": 1, "Hq": 2, "Hkv": 2, "Nq": rows, "Nk": keys, "D": 16, "Dv": 16}
    assert empty_rows(recipe(keep), sizes) is may
