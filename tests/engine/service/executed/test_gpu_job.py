"""What a job says of someone's launcher: its tensors, and what nvcc makes of its tanh."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cuir.parser import parse_expr
from engine.errors import InputError
from engine.foreign.called import interface_of
from engine.foreign.check import Asked
from engine.foreign.compile import Flags
from engine.foreign.launcher import read_launcher
from engine.foreign.reference import Reference
from engine.service.executed.gpu_job import binding_of, fast_tanh
from engine.spec.python.signature import Signature
from engine.spec.recipes.recipe import Input, Recipe

SOURCE = """void launch(const __nv_bfloat16* q, const __nv_bfloat16* k, const KEY* v, OUT* o,
                        const EXTRA* slopes, int B, int Hq, int Nq, int Nk, int D) {}"""


def stored(key: str = "__nv_bfloat16", out: str = "__nv_bfloat16", extra: str = "float") -> str:
    """What the worker calls the elements of an extra input."""
    dims = {"q": ("B", "Hq", "Nq", "D"), "k": ("B", "Hq", "Nk", "D"), "v": ("B", "Hq", "Nk", "D")}
    inputs = (*(Input(n, n, "T", d) for n, d in dims.items()),
              Input("slopes", "extra", "f32", ("Hq",)))  # fmt: skip
    recipe = Recipe("eager", inputs, parse_expr("x + slopes[h]"), parse_expr("True"), None,
                    parse_expr("h"), ("B", "Hq", "Nq", "D"), "nan")  # fmt: skip
    spec = Reference(Path("a.py"), Signature.of(recipe), None, {})
    text = SOURCE.replace("KEY", key).replace("OUT", out).replace("EXTRA", extra)
    shapes = {**spec.shapes, "o": "B Hq Nq D"}
    own = interface_of(read_launcher(text, "a.cu", "launch", shapes, "bf16"))
    binding = binding_of(own, spec, Asked(Path("a.cu"), Flags("sm_80"), reference=spec.path))
    rows = {t.field: t.dtype for t in binding.tensors}
    assert {rows[n] for n in "qkvo"} == {"T"}
    return rows["slopes"]


@pytest.mark.parametrize(
    ("element", "held"),
    [("float", "f32"), ("int", "i32"), ("int64_t", "int64"), ("bool", "bool"), ("bf16", "T")],
)
def test_an_extra_input_has_elements_of_its_own(element: str, held: str) -> None:
    assert stored(extra=element) == held


@pytest.mark.parametrize("given", [{"extra": "double"}, {"extra": "int8_t"}, {"extra": "half"},
                                   {"key": "half"}, {"out": "float"}])  # fmt: skip
def test_elements_that_a_job_does_not_carry_are_refused(given: dict[str, str]) -> None:
    name = {"extra": "slopes", "key": "v", "out": "o"}[next(iter(given))]
    with pytest.raises(InputError, match=rf"^{name} has elements of \w+: .* type of q \(bf16\)"):
        stored(**given)


@pytest.mark.parametrize(
    ("flags", "text", "fast"),
    [
        (("-std=c++17", "--use_fast_math"), b"x = tanhf(x);", True),
        (("-use_fast_math",), b"x = tanhf(x);", True),
        (("-std=c++17",), b"x = tanhf(x);", False),
        (("--use_fast_math",), b"x = 1.0f / (1.0f + expf(-x));", False),
    ],
)
def test_nvcc_takes_the_fast_tanh_where_its_flag_says_so(
    flags: tuple[str, ...], text: bytes, fast: bool
) -> None:
    assert fast_tanh(Asked(Path("a.cu"), Flags("sm_80", more=flags)), [b"", text]) == fast
