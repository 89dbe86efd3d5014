"""Proven, a smallest witness, or unknown; and proven only where it means something."""

from __future__ import annotations

from typing import Any

import z3

from engine.prove.solver import Goal, Proven, Unknown, Witness, find, prove

A, B = z3.Ints("A B")


def goal(claim: Any, *given: Any, twin: Any | None = None) -> Goal:
    return Goal(
        "g", given, claim, z3.BoolVal(False) if twin is None else twin, {"A": A, "B": B}, (A + B, A)
    )


def test_what_holds_everywhere_is_proven() -> None:
    found = prove(goal(A * A + B >= 1, A >= 1, B >= 0, twin=A * A >= 2))
    assert isinstance(found, Proven) and found.solver.startswith("z3 ")


def test_a_witness_is_the_smallest() -> None:
    found = prove(goal(A * 3 + B != 1000, A >= 0, B >= 0, A % 7 == 5, twin=A < 0))
    # 3 A + B = 1000 with A = 5 mod 7: A + B is least where A is the largest such, 327.
    assert found == Witness({"A": 327, "B": 19})
    assert find((A >= 70_000, A % 64 == 3, B == 0), {"A": A}, (A,)) == Witness({"A": 70_019})


def test_assumptions_that_nothing_satisfies_prove_nothing() -> None:
    found = prove(goal(A == A, A >= 1, A < 1))
    assert isinstance(found, Unknown) and "no legal size" in found.reason


def test_a_claim_whose_false_twin_holds_too_is_not_proven() -> None:
    found = prove(goal(A >= 0, A >= 1, twin=A >= 1))
    assert isinstance(found, Unknown) and "false twin" in found.reason


def test_the_same_question_is_answered_once() -> None:
    def asked(least: int) -> object:
        return prove(goal(least <= A + B, A >= 1, B >= 1, twin=A >= 2))

    first = asked(2)
    assert asked(2) is first and asked(3) is not first
    small, large = (find((n <= A,), {"A": A}, (A,)) for n in (5, 6))
    assert small == Witness({"A": 5}) and large == Witness({"A": 6})
    assert find((A >= 5,), {"A": A}, (A,)) is small


def test_the_budget_is_counted_in_steps() -> None:
    """The same question gets the same answer, whatever was asked before it."""
    cubes = (z3.Int("C") ** 3 == A**3 + B**3, A > 0, B > 0)
    found = find(cubes, {"A": A}, (), budget=20_000)
    assert isinstance(found, Unknown) and "budget" in found.reason
    assert found == find(cubes, {"A": A}, (), budget=20_000)
