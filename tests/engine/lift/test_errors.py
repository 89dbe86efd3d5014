"""Texts that cannot be lifted: one error each, with line and fix; never another exception."""

from __future__ import annotations

import random

import pytest

from engine.errors import CuBridgeError, InputError, LiftError
from engine.lift import lift, lift_source
from engine.lift.cpp.tokens import Tokens
from tests.engine.lift.sources import BINDING, CONTRACT, frame

KERNEL = frame("sync();").decode()
TEMPLATE = "template <typename T, int D>\n"
LAUNCH_AT = KERNEL.index("template <typename T, int D>\ncudaError_t")

CASES = {
    "empty": ("", 1, "no kernel"),
    "prose": ("Attention is all you need.\n", 1, "no kernel"),
    "python": ("\ndef attention(q, k, v):\n    return q @ k\n", None, "no kernel"),
    "c++": ("int main() { return 0; }", 1, "no kernel"),
    "only headers": ('#include "cubridge/sm80.cuh"\n', None, "no kernel"),
    "zero bytes": ("__global__ void f() {}\0", 1, "not CUDA source"),
    "no launch": (KERNEL[:LAUNCH_AT], None, "no launch"),
    "launch is not ours": (
        KERNEL[:LAUNCH_AT] + "void launch(float* x) { kernel<<<1, 2>>>(x); }", 23, "launch",
    ),
    "kernel is not ours": ("\n\n__global__ void f(float* x) { *x = 1; }", 3, "float *"),
    "kernel under #if": (
        KERNEL.replace(f"{TEMPLATE}__global__", f"#if 1\n{TEMPLATE}__global__")
        .replace(f"}}\n{TEMPLATE}cuda", f"}}\n#endif\n{TEMPLATE}cuda"),
        7, "cannot be lifted",
    ),
    "field of another type": (KERNEL.replace("float scale", "double scale"), 4, "field"),
    "field pointer": (KERNEL.replace("float scale", "float* scale"), 4, "field"),
    "field array": (KERNEL.replace("float scale", "float scale[2]"), 4, "field"),
    "field named as Python's": (KERNEL.replace("float scale", "float lambda"), 4, "lambda"),
    "field twice": (KERNEL.replace("float scale", "float n"), 4, "twice"),
    "static_assert": (KERNEL.replace("sync();", "static_assert(D == 64);"), 21, "D == 64"),
    "static_assert at the top": (
        KERNEL.replace("template <typename T> __dev", "static_assert(sizeof(Args) == 1);\n__dev"),
        5, "sizeof(Args) == 1",
    ),
    "static_assert of the launch": (
        KERNEL.replace("sync();", "static_assert(args.B == 3);"),
        21, "cannot be evaluated",
    ),
    "launch bounds": (KERNEL.replace("bounds__(128)", "bounds__(N)"), 8, "launch bounds"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_error_with_line_and_fix(name: str):
    text, line, words = CASES[name]
    with pytest.raises(LiftError) as caught:
        lift_source(text.encode(), BINDING, "sm_80", file="some.cu")
    error = caught.value
    assert words in error.message
    assert error.fix
    assert error.where is not None and error.where.file == "some.cu"
    assert error.where.line is not None
    if line is not None:
        assert error.where.line == line


BINDINGS = {
    "missing": ({"T": "bf16"}, "binds T"),
    "extra": ({**BINDING, "N": "3"}, "binds T, D, N"),
    "type": ({"T": "fp8", "D": "128"}, "T=fp8"),
    "number": ({"T": "bf16", "D": "big"}, "D=big"),
    "huge": ({"T": "bf16", "D": "9" * 20}, "D=999"),
}


@pytest.mark.parametrize("name", BINDINGS)
def test_a_specialisation_that_is_none(name: str):
    binding, words = BINDINGS[name]
    with pytest.raises(LiftError, match=words) as caught:
        lift_source(CONTRACT, binding, "sm_80")
    assert caught.value.fix


def test_an_unknown_arch():
    with pytest.raises(InputError, match="sm_1"):
        lift_source(CONTRACT, BINDING, "sm_1")


def test_a_bare_source_finds_a_specialisation_that_its_assertions_allow():
    source = CONTRACT.replace(
        b"static_assert(BM", b'static_assert(D == 64, "");\n  static_assert(BM'
    )
    assert lift(source).specialisation == {"arch": "sm_80", "T": "bf16", "D": "64"}
    with pytest.raises(LiftError, match="D == 7"):
        lift(source.replace(b"D == 64", b"D == 7"))


@pytest.mark.parametrize("seed", range(4))
def test_broken_sources_end_in_a_lift_or_one_error(seed: int):
    """Tokens dropped, doubled and replaced, bytes cut: never another exception."""
    chooser = random.Random(seed)
    tokens = Tokens(CONTRACT).all
    texts = sorted({t.text for t in tokens})
    for _ in range(60):
        source = bytearray(CONTRACT)
        for _ in range(chooser.randint(1, 4)):
            token = chooser.choice(tokens)
            new = chooser.choice(["", token.text * 2, chooser.choice(texts), "\\", '"', "{", "/*"])
            source[token.start : token.end] = new.encode()
        cut = chooser.randrange(len(source))
        text = bytes(source[:cut] if chooser.random() < 0.2 else source)
        try:
            lifted = lift_source(text, BINDING, "sm_80")
        except CuBridgeError as error:
            assert isinstance(error, LiftError) and error.fix and error.where is not None
        else:
            assert lifted.source == text


def test_hostile_nesting_is_one_error_or_opaque():
    for body in (
        "i = " + "(" * 5000 + "1" + ")" * 5000 + ";",
        "i = " + "-" * 1 + "- " * 4000 + "1;",
        "{" * 3000 + "}" * 3000,
        "if (ok) " * 3000 + "sync();",
        "i = " + "1 + " * 20000 + "1;",
        "i = " + "ok ? 1 : " * 3000 + "1;",
        "s = map(s, " * 2000,
    ):
        try:
            lifted = lift_source(frame(body), BINDING, "sm_80")
        except LiftError:
            continue
        assert lifted.opaque
