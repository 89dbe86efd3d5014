"""The kernels that make q and k ready: what they write is what the recipe says, row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.cuir.execute import run_program
from engine.cuir.nodes import Assign, For, Module, Name, Return, walk_expr
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_module
from engine.cuir.rewrite import map_function
from engine.cuir.static.check import check
from engine.errors import TransferError
from engine.lower.spelling.legal import legal
from engine.service.session.workbench import lift_any
from engine.spec.decks.deck_inputs import extent
from engine.spec.recipes.recipe import Input, Recipe
from engine.spec.reference.oracle import environment, expected, operand
from engine.transfer.fill import fill_arguments
from engine.transfer.match import find_attention
from engine.transfer.rules import apply, plan
from tests.engine.transfer.recipes import lifted, recipe

KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")
SIZES = {"B": 2, "Hq": 5, "Hkv": 5, "Nq": 19, "Nk": 23}
INPUTS = (
    Input("w", "extra", "T", ("Hq", "D")),
    Input("u", "extra", "f32", ("D",)),
    Input("r", "extra", "f32", ("B", "Nq")),
    Input("cos", "extra", "T", ("B", "Nq", "D")),
    Input("sin", "extra", "f32", ("Nq", "D")),
    Input("part", "extra", "T", ("Nq", "32")),
)
Q, T = "q[b, h, i, dd]", "sum_over(lambda c: q[b, h, i, c] * q[b, h, i, c], D)"
MEAN = "sum_over(lambda c: q[b, h, i, c], D) / D"
ALL = "sum_over(lambda c: sum_over(lambda c2: q[b, c, i, c2] * q[b, c, i, c2], D), Hq)"
HALVES = "(-q[b, h, i, dd + D // 2] if dd < D // 2 else q[b, h, i, dd - D // 2])"
PAIRS = (
    "(-q[b, h, i, 2 * floor_div(dd, 2) + 1] if floor_mod(dd, 2) == 0 "
    "else q[b, h, i, 2 * floor_div(dd, 2)])"
)
MADE = {
    "norm": f"{Q} * rsqrt({T} / D + 1e-6) * (w[h, dd] + 1.0)",
    "length": f"{Q} / max(sqrt({T}), 1e-12) * u[dd]",
    "layer norm": f"({Q} - {MEAN}) * rsqrt(sum_over(lambda c: (q[b, h, i, c] - {MEAN}) * "
    f"(q[b, h, i, c] - {MEAN}), D) / D + 1e-5) * u[dd] + w[h, dd]",
    "halves": f"{Q} * cos[b, i, dd] + {HALVES} * sin[i, dd]",
    "neighbours": f"{Q} * cos[b, i, dd] + {PAIRS} * sin[i, dd]",
    "a norm in halves": (
        f"{Q} * rsqrt({T} / D + 1e-6) * (u[dd] + 1.0) * cos[b, i, dd] + "
        f"(-(q[b, h, i, dd + D // 2] * rsqrt({T} / D + 1e-6) * (u[dd + D // 2] + 1.0)) "
        f"if dd < D // 2 else q[b, h, i, dd - D // 2] * rsqrt({T} / D + 1e-6) * "
        "(u[dd - D // 2] + 1.0)) * sin[i, dd]"
    ),
    "a part": f"{Q} * u[dd] + q[b, h, i, dd + D // 4] if dd < D // 4 else {Q}",
    "a narrow table": f"{Q} * part[i, dd - 64] if dd >= 64 and dd < 96 else {Q}",
    "a narrow table, unaligned": f"{Q} * part[i, dd - 40] if dd >= 40 and dd < 72 else {Q}",
    "columns back": f"{Q} * cos[b, i, dd - 24] + q[b, h, i, dd - 3] if dd >= 24 else {Q}",
    "not in its pair far out": (
        f"(q[b, h, i, min(dd + 1, 65)] if floor_mod(dd, 2) == 0 else q[b, h, i, dd - 1]) + {Q}"
    ),
    "norm of a part": f"{Q} * rsqrt(sum_over(lambda c: q[b, h, i, c] * q[b, h, i, c], D // 2))",
    "largest": f"{Q} / max_over(lambda c: abs(q[b, h, i, c]) + u[c], D)",
    "rows": f"{Q} * u[dd] + r[b, i] * w[h, dd]",
    "all heads": f"{Q} * rsqrt({ALL} / (Hq * D) + 1e-6) * w[h, dd]",
    "all heads, then halves": (
        f"{Q} * rsqrt({ALL} / (Hq * D) + 1e-6) * cos[b, i, dd] + "
        f"(-(q[b, h, i, dd + D // 2] * rsqrt({ALL} / (Hq * D) + 1e-6)) if dd < D // 2 else "
        f"q[b, h, i, dd - D // 2] * rsqrt({ALL.replace('c2', 'c3')} / (Hq * D) + 1e-6)) "
        "* sin[i, dd]"
    ),
    "all heads, centred": f"({Q} - sum_over(lambda c: sum_over(lambda c2: q[b, c, i, c2], D), Hq) "
    "/ (Hq * D)) * u[dd]",
    "positions": f"{Q} * (i + Nk - Nq) + u[D - 1 - dd]",
}


PARTS = {
    "parts": f"{Q} if dd < 40 else u[b, h, i, dd - 40]",
    "a part that all heads share": f"{Q} if dd < 40 else r[b, i, dd - 40] * w[dd - 40]",
    "a rotated part": f"{Q} if dd < 40 else u[b, h, i, dd - 40] * w[dd - 40] + (-u[b, h, i, "
    "dd - 40 + 8] if dd - 40 < 8 else u[b, h, i, dd - 40 - 8])",
    "neighbours in a part": f"{Q} if dd < 40 else (-u[b, h, i, 2 * floor_div(dd - 40, 2) + 1] "
    "if floor_mod(dd - 40, 2) == 0 else u[b, h, i, 2 * floor_div(dd, 2) - 40]) * w[dd - 40]",
    "a norm of a part": f"{Q} if dd < 40 else u[b, h, i, dd - 40] * rsqrt(sum_over(lambda c: "
    "u[b, h, i, c] * u[b, h, i, c], REST) / REST + 1e-6)",
    "a norm of the whole": f"({Q} if dd < 40 else u[b, h, i, dd - 40]) / sqrt(sum_over(lambda c: "
    "(q[b, h, i, c] if c < 40 else u[b, h, i, c - 40]) * "
    "(q[b, h, i, c] if c < 40 else u[b, h, i, c - 40]), D))",
    "the part last": f"u[b, h, i, dd] if dd < REST else {Q.replace('dd', 'dd - REST')}",
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", PARTS)
def test_writes_rows_of_parts(kernel: str, name: str) -> None:
    """q is given in 40 columns of its own and those that are left of D."""
    base = lifted(kernel)
    rest = str(columns_of(base) - 40)
    made = PARTS[name].replace("REST", rest)
    inputs = (
        Input("u", "extra", "T", ("B", "Hq", "Nq", rest)),
        Input("r", "extra", "T", ("B", "Nq", rest)),
        Input("w", "extra", "f32", (rest,)),
    )
    wanted = recipe(extra=tuple(i for i in inputs if f"{i.name}[" in made), q=made)
    first = replace(wanted.inputs[0], dims=("B", "Hq", "Nq", "40"))
    number = parse_expr(f"D == {columns_of(base)}")
    holds(base, replace(wanted, inputs=(first, *wanted.inputs[1:]), constraints=(number,)))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", MADE)
def test_writes_what_the_recipe_says(kernel: str, name: str) -> None:
    made = MADE[name]
    extra = tuple(i for i in INPUTS if f"{i.name}[" in made)
    wanted = recipe(extra=extra, q=made)
    if name not in LANDED or kernel != "flash_fwd_sm90":
        holds(lifted(kernel), wanted)


LANDED = ("norm", "length", "layer norm", "rows")


@pytest.mark.parametrize("columns", [128, 72])
@pytest.mark.parametrize("name", LANDED)
def test_rows_of_their_own_are_made_ready_where_they_land(name: str, columns: int) -> None:
    """At 72 columns a shared tile's last 56 are zeros, which no sum may count."""
    made = MADE[name]
    wanted = recipe(extra=tuple(i for i in INPUTS if f"{i.name}[" in made), q=made)
    base = lift_any("flash_fwd_sm90", None, {"D": str(columns)}).module
    planned = plan(base, wanted)
    *_, (_, target) = apply(base, planned.steps)
    assert planned.binding.scratch == () and "prepare_q" not in print_module(target)
    inputs = drawn(wanted, columns)
    sizes = {**SIZES, "D": columns, "Dv": columns}
    fields = fill_arguments(planned.binding, inputs, sizes, torch.float64, torch.float64).fields
    outcome = run_program(legal(target), fields, "exact")
    assert outcome.findings == ()
    torch.testing.assert_close(
        outcome.outputs["o"], expected(wanted, inputs).o, rtol=1e-9, atol=1e-9
    )


def drawn(wanted: Recipe, columns: int) -> dict[str, torch.Tensor]:
    sizes = {**SIZES, "D": columns, "Dv": columns}
    make = torch.Generator().manual_seed(1)
    return {
        i.name: torch.randn([extent(d, sizes) for d in i.dims], generator=make, dtype=torch.float64)
        for i in wanted.inputs
    }


def columns_of(base: Module) -> int:
    return next(int(v.value) for n, v in base.spec if n == "D")  # type: ignore[union-attr]


def holds(base: Module, wanted: Recipe) -> None:
    planned = plan(base, wanted)
    *_, (_, target) = apply(base, planned.steps)
    target = legal(target)
    assert check(target) == ()
    found = find_attention(target)
    short = map_function(
        target, found.host, lambda f: replace(f, body=(*f.body[:-1], Return(Name("success"))))
    )
    columns = columns_of(target)
    assert columns > 66
    inputs, sizes = drawn(wanted, columns), {**SIZES, "D": columns, "Dv": columns}
    fields = fill_arguments(planned.binding, inputs, sizes, torch.float64, torch.float64).fields
    (scratch,) = planned.binding.scratch
    outcome = run_program(short, fields, "exact", unfilled=[scratch.field])
    assert outcome.findings == ()
    env = environment(wanted, inputs, *(inputs[n] for n in "qkv"))
    torch.testing.assert_close(
        outcome.outputs[scratch.field], operand(wanted, "q", inputs, env), rtol=1e-11, atol=1e-11
    )


def test_factors_that_heads_share_are_multiplied_before_them() -> None:
    made = MADE["a norm in halves"]
    wanted = recipe(extra=tuple(i for i in INPUTS if f"{i.name}[" in made), q=made)
    base = lifted("flash_fwd_sm90")
    *_, (_, target) = apply(base, plan(base, wanted).steps)
    *before, heads = target.function("prepare_q").body
    common = [s.target for s in before if isinstance(s, Assign) and s.target.startswith("common")]
    assert len(common) == 2 and isinstance(heads, For)
    ready = next(s for s in heads.body if isinstance(s, Assign) and s.target == "ready")
    read = {node.id for node in walk_expr(ready.value) if isinstance(node, Name)}
    assert set(common) <= read and not {"cos_tile", "sin_tile", "u_tile"} & read


def test_a_sum_over_all_heads_is_made_once() -> None:
    made = MADE["all heads, then halves"]
    wanted = recipe(extra=tuple(i for i in INPUTS if f"{i.name}[" in made), q=made)
    base = lifted("flash_fwd_sm90")
    *_, (_, target) = apply(base, plan(base, wanted).steps)
    loops = [s for s in target.function("prepare_q").body if isinstance(s, For)]
    assert len(loops) == 2  # that of the sum, and that of what it is for


def test_a_sum_over_all_heads_of_sums_is_refused() -> None:
    mean = "sum_over(lambda c: sum_over(lambda c2: q[b, c, i, c2], D), Hq) / (Hq * D)"
    each = f"(q[b, c3, i, c4] - {mean})"
    spread = f"sum_over(lambda c3: sum_over(lambda c4: {each} * {each}, D), Hq)"
    wanted = recipe(q=f"({Q} - {mean}) * rsqrt({spread} / (Hq * D) + 1e-5)")
    base = lifted("flash_fwd_sm80")
    with pytest.raises(TransferError, match="of what is made of sums"):
        list(apply(base, plan(base, wanted).steps))


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_attention_reads_what_was_made(kernel: str) -> None:
    base = lifted(kernel)
    *_, (_, target) = apply(base, plan(base, recipe(k="k[b, h, j, dd] * 2.0")).steps)
    found = find_attention(target)
    assert (found.fields["q"], found.fields["k"], found.fields["v"]) == ("q", "k_ready", "v")


def test_what_reads_no_row_is_refused() -> None:
    wanted = replace(recipe(extra=INPUTS[1:2]), q=parse_expr("u[dd]"))
    base = lifted("flash_fwd_sm80")
    with pytest.raises(TransferError, match="does not read it"):
        list(apply(base, plan(base, wanted).steps))
