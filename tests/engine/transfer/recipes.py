"""Recipes and kernels for the tests of the rules."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_expr
from engine.lift import lift
from engine.lift.files.kernel_package import load_package
from engine.spec.recipes.recipe import Input, LseBase, Other, Recipe

ROOT = Path(__file__).resolve().parents[3]
QKV = (
    Input("q", "q", "T", ("B", "Hq", "Nq", "D")),
    Input("k", "k", "T", ("B", "Hkv", "Nk", "D")),
    Input("v", "v", "T", ("B", "Hkv", "Nk", "D")),
)

OTHER_QK = (
    Input("q2", "extra", "T", ("B", "Nq", "Hq", "D")),
    Input("k2", "extra", "T", ("B", "Hkv", "Nk", "D")),
)


def recipe(
    score: str = "x * 0.125",
    keep: str = "True",
    extra: tuple[Input, ...] = (),
    weight: str | None = None,
    kv_head: str = "h // (Hq // Hkv)",
    q: str | None = None,
    k: str | None = None,
    sink: str | None = None,
    output: str = "o",
    lse: LseBase | None = None,
    late: str | None = None,
    other: str | None = None,
) -> Recipe:
    """A recipe from expression texts."""
    return Recipe(
        "eager",
        QKV + extra,
        parse_expr(score),
        parse_expr(keep),
        parse_expr(weight) if weight is not None else None,
        parse_expr(kv_head),
        ("B", "Hq", "Nq", "D"),
        "nan",
        q=parse_expr(q) if q is not None else None,
        k=parse_expr(k) if k is not None else None,
        sink=None if sink is None else parse_expr(sink),
        output=parse_expr(output),
        lse=lse,
        late=None if late is None else parse_expr(late),
        other=None if other is None else Other("q2", "k2", parse_expr(other)),
    )


@cache
def lifted(name: str, columns: int | None = None) -> Module:
    """The largest specialisation of a bundled kernel, or the one of so many columns."""
    package = load_package(ROOT / "kernels" / name)
    built = [s for s in package.specialisations if columns is None or s["D"] == str(columns)]
    if not built:
        pytest.skip(f"{name} is not built for {columns} columns")
    return lift(package, built[-1], package.archs[0]).module


VARIANTS = {
    "softcap_causal": recipe("30.0 * tanh(x * 0.125 / 30.0)", "j <= i + (Nk - Nq)"),
    "alibi_causal": recipe(
        "x * 0.125 + slope[h] * (j - (i + (Nk - Nq)))",
        "j <= i + (Nk - Nq)",
        (Input("slope", "extra", "f32", ("Hq",)),),
    ),
    "window": recipe(keep="j <= i + (Nk - Nq) and j > i + (Nk - Nq) - 128"),
    "global_window": recipe(keep="(j <= i and (i - j <= 8 or j < 4)) or (j >= i and j - i <= 8)"),
    "document": recipe(
        keep="doc[j] == doc[i] and j <= i", extra=(Input("doc", "extra", "i32", ("Nk",)),)
    ),
    "bias": recipe(
        "x * 0.125 + bias[0, h, i, j]",
        extra=(Input("bias", "extra", "f32", ("1", "Hq", "Nq", "Nk")),),
    ),
    "sigmoid_document": recipe(
        "x * 0.125 - 3.0 + slope[h]",
        "doc[j] == doc[i] and j <= i + (Nk - Nq)",
        (Input("doc", "extra", "i32", ("Nk",)), Input("slope", "extra", "f32", ("Hq",))),
        "1.0 / (1.0 + exp(-s))",
    ),
    "sigmoid": recipe("x * 0.125 - 3.0", weight="1.0 / (1.0 + exp(-s))"),
    "normalised": recipe(
        keep="j <= i + (Nk - Nq)",
        extra=(Input("w", "extra", "T", ("Hq", "D")),),
        q="q[b, h, i, dd] * w[h, dd] / sqrt(sum_over(lambda c: q[b, h, i, c] * q[b, h, i, c], D))",
        k="k[b, h, j, dd] / max(max_over(lambda c: abs(k[b, h, j, c]), D), 1e-6)",
    ),
    "sink": recipe(
        keep="j <= i", extra=(Input("sinks", "extra", "T", ("Hq",)),), sink="sinks[h]", lse="2"
    ),
    "capped_row_sink": recipe(
        "30.0 * tanh(x * 0.125 / 30.0)",
        extra=(Input("sinks", "extra", "f32", ("B", "Nq", "Hq")),),
        sink="sinks[b, i, h]",
    ),
    "gate": recipe(
        keep="j <= i",
        extra=(Input("gate", "extra", "T", ("B", "Nq", "Hq", "D")),),
        output="o * sigmoid(gate[b, i, h, d])",
    ),
    "row_gate": recipe(
        extra=(Input("gate", "extra", "T", ("B", "Nq", "Hq")),), output="o * sigmoid(gate[b, i, h])"
    ),
    "sink_and_row_gate": recipe(
        extra=(Input("gate", "extra", "T", ("B", "Nq", "Hq")),),
        sink="0.0",
        output="o * sigmoid(gate[b, i, h])",
    ),
    "late_mask": recipe(keep="j <= i", late="1.0 if i - j < 64 else 0.0"),
    "late_share": recipe(
        extra=(Input("share", "extra", "T", ("B", "Nk")),), sink="0.0", late="share[b, j]"
    ),
    "difference": recipe(keep="j <= i", extra=OTHER_QK, other="o - 0.8 * o2"),
    "difference_document": recipe(
        keep="doc[b, j] == doc[b, i] and j <= i",
        extra=(*OTHER_QK, Input("doc", "extra", "i32", ("B", "Nk"))),
        other="o - o2",
        output="o * rsqrt(sum_over(lambda c: o[c] * o[c], D) / D + 1e-5)",
    ),
    "difference_sigmoid": recipe(
        "x * 0.125 - 3.0", extra=OTHER_QK, weight="sigmoid(s)", other="o - 0.8 * o2"
    ),
    "normed_output": recipe(
        extra=(Input("w", "extra", "f32", ("Hq", "D")),),
        output="o / max(sqrt(sum_over(lambda c: o[c] * o[c], Dv)), 1e-6) * w[h, d]",
    ),
    "relative": recipe(
        "x * 0.125 + sum_over(lambda c: q[b, h, i, c] * far[min(max(i - j, 0), 8), c], D)",
        extra=(Input("far", "extra", "T", ("9", "D")),),
    ),
    "scaled_sigmoid": recipe(
        "x * 0.125",
        extra=(Input("w", "extra", "f32", ("Hq", "D")),),
        weight="sigmoid(s)",
        output="o * w[h, d] / f32(Nk)",
    ),
}
