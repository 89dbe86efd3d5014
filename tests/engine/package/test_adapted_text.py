"""The README of someone's kernel with its edits."""

from __future__ import annotations

import pytest

from engine.package.texts import adapted_text
from engine.types import Gate, Level, Verdict, VerdictKind
from tests.engine.gpu.fakes import causal_recipe

TIMES = ({"case": "S 2048", "name": "CuBridge", "ms": 1.0},)


@pytest.mark.parametrize(("times", "said"), [(TIMES, False), ((), True)])
def test_it_says_whether_anything_was_timed(times: tuple[object, ...], said: bool) -> None:
    given = Verdict(Gate.G4, VerdictKind.PASS, "H100: 20 checks", 1.0, (), {"times": list(times)})
    recipe = causal_recipe()
    text = adapted_text("theirs", "x.cu", "void launch()", "nvcc -c x.cu", recipe,
                        Level.GPU_VERIFIED, (given,), 4)  # fmt: skip
    assert "Level: gpu-verified" in text and "G4" in text
    assert ("nothing was timed" in text) is said
