"""The README of someone's kernel with its edits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.package.texts import adapted_text
from engine.spec.recipes.recipe import Clause
from engine.types import Gate, Level, Verdict, VerdictKind
from tests.engine.gpu.fakes import causal_recipe

TIMES = ({"case": "S 2048", "name": "CuBridge", "ms": 1.0},)


@pytest.mark.parametrize(("times", "said"), [(TIMES, False), ((), True)])
def test_it_says_whether_anything_was_timed(times: tuple[object, ...], said: bool) -> None:
    given = Verdict(Gate.G4, VerdictKind.PASS, "H100: 20 checks", 1.0, (), {"times": list(times)})
    recipe = causal_recipe()
    text = adapted_text("theirs", "x.cu", "void launch();", "nvcc -c x.cu", recipe, True,
                        Level.GPU_VERIFIED, (given,), 4)  # fmt: skip
    assert "Level: gpu-verified" in text and "G4" in text
    assert ("nothing was timed" in text) is said


def test_it_speaks_of_lse_only_where_the_kernel_writes_it() -> None:
    clauses = (
        Clause("normaliser", "softmax over the kept keys; LSE is a natural logarithm"),
        Clause("empty rows", "the spec gives NaN there, the kernel gives O = 0 and LSE = -inf"),
    )
    recipe = replace(causal_recipe(), clauses=clauses)
    with_lse, without = (
        adapted_text("theirs", "x.cu", "void launch();", "nvcc -c x.cu", recipe, lse,
                     Level.CPU_VERIFIED, (), 4)
        for lse in (True, False)
    )  # fmt: skip
    assert "; LSE is a natural logarithm\n" in with_lse and "and LSE = -inf\n" in with_lse
    assert "softmax over the kept keys\n" in without and "gives O = 0\n" in without
    assert "LSE" not in without
