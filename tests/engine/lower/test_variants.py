"""The attention variants as the rules make them: lowered to few lines of the expert's kernel."""

from __future__ import annotations

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_expr
from engine.lift.cpp.provenance import Lifted
from engine.lower.spans import allowed_spans, verify_spans
from engine.spec.recipes.recipe import Input, Recipe
from engine.transfer.rules import apply, plan
from tests.engine.lower.fixtures import VARIANTS, checked, lifted, source

CAUSAL = "j <= i + Nk - Nq"
WINDOW = f"{CAUSAL} and j >= i + Nk - Nq - 256"
QKV = (
    Input("q", "q", "T", ("B", "Hq", "Nq", "D")),
    Input("k", "k", "T", ("B", "Hkv", "Nk", "D")),
    Input("v", "v", "T", ("B", "Hkv", "Nk", "D")),
)
SLOPES = Input("slopes", "extra", "f32", ("Hq",))
BIAS = Input("bias", "extra", "T", ("1", "Hq", "Nq", "Nk"))
DOCS = (Input("doc_q", "extra", "i32", ("B", "Nq")), Input("doc_k", "extra", "i32", ("B", "Nk")))


def recipe(
    score: str, keep: str = "True", extra: tuple[Input, ...] = (), weight: str | None = None
) -> Recipe:
    return Recipe(
        "eager", (*QKV, *extra), parse_expr(score), parse_expr(keep),
        parse_expr(weight) if weight else None, parse_expr("h // (Hq // Hkv)"),
        ("B", "Hq", "Nq", "D"), "nan" if keep != "True" else "never",
    )  # fmt: skip


SHORT = {
    "softcap": recipe("50.0 * tanh(x * rsqrt(D) / 50.0)"),
    "softcap_causal": recipe("50.0 * tanh(x * rsqrt(D) / 50.0)", CAUSAL),
    "alibi_causal": recipe("x * rsqrt(D) + slopes[h] * (j - i - Nk + Nq)", CAUSAL, (SLOPES,)),
    "window_causal": recipe("x * rsqrt(D)", WINDOW),
    "window": recipe("x * rsqrt(D)", "j <= i + Nk - Nq + 64 and j >= i + Nk - Nq - 64"),
    "causal": recipe("x * rsqrt(D)", CAUSAL),
    "prefix": recipe("x * rsqrt(D)", f"j < 77 or {CAUSAL}"),
    "columns_window": recipe("x * rsqrt(D)", "j <= i + D + 6"),
}
OTHER = {
    "bias": recipe("x * rsqrt(D) + bias[0, h, i, j]", "True", (BIAS,)),
    "documents": recipe("x * rsqrt(D)", f"{CAUSAL} and doc_k[b, j] == doc_q[b, i]", DOCS),
    "sigmoid": recipe("x * rsqrt(D)", CAUSAL, (), "sigmoid(s)"),
}
KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")


def adapted(kernel: Lifted, wanted: Recipe) -> Module:
    trail = [module for _, module in apply(kernel.module, plan(kernel.module, wanted).steps)]
    return trail[-1]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("variant", SHORT)
def test_a_variant_changes_few_lines(name: str, variant: str) -> None:
    kernel = lifted(name)
    done = checked(kernel, adapted(kernel, SHORT[variant]))
    assert 0 < done.share <= 0.15, done.changed_lines


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("variant", OTHER)
def test_a_variant_lowers(name: str, variant: str) -> None:
    kernel = lifted(name)
    done = checked(kernel, adapted(kernel, OTHER[variant]))
    # A mask that reads inputs brings three kernels of its own, which list its tiles.
    assert 0 < done.share < (1.25 if variant == "documents" else 0.3), done.changed_lines


@pytest.mark.parametrize("writing", VARIANTS)
def test_every_writing_of_the_file_stays(writing: str) -> None:
    data = VARIANTS[writing](source("flash_fwd_sm80"))
    kernel = lifted("flash_fwd_sm80", data)
    target = adapted(kernel, SHORT["alibi_causal"])
    done = checked(kernel, target).source
    assert verify_spans(data, done, allowed_spans(kernel, target)) is None
    if writing == "crlf":
        assert done.count(b"\r\n") == done.count(b"\n")
    if writing == "tabs":
        assert not any(line.startswith(b"  ") for line in done.split(b"\n") if line.strip())
    if writing == "no_final_newline":
        assert done.endswith(b"}")
    if writing == "bom":
        assert done.count(b"\xef\xbb\xbf") == 1 and done.startswith(b"\xef\xbb\xbf")


def test_what_an_alibi_looks_like_in_the_kernel() -> None:
    kernel = lifted("flash_fwd_sm80")
    text = checked(kernel, adapted(kernel, SHORT["alibi_causal"])).source.decode()
    assert "  float scale;  // positive\n  TensorArg slopes;\n};" in text
    assert "  const auto slopes = gmem<float>(args.slopes, args.Hq);\n" in text
    assert "  const int last = min(q0 + BM, args.Nq) - 1;\n" in text
    assert "s = map(s, at(q0, n * BN), [&](float x, int i, int j)" in text
    assert max(len(line) for line in text.split("\n")) <= max(
        120, *(len(line) for line in kernel.source.decode().split("\n"))
    )
