"""G2 refuses what is nearly right in the softmax's sum and after it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from engine.cuir.parser import parse_module, parse_with_tables
from engine.cuir.printer import print_module
from engine.gates.deck import Case
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.judge import judge
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.spec import read_recipe
from engine.transfer.rules import apply, plan
from tests.engine.gates.g1_g2.test_judge import subject_of

SMALL = [Case(2, 4, 2, 5, 7), Case(1, 2, 1, 9, 150), Case(1, 2, 2, 3, 0, modes=("exact",))]
FIRST = "sum + exp2_approx((sinks_h - top * args.scale) * LOG2E)"
LSE = "max(sum, sinks_h) + log(1.0 + exp(-abs(sum - sinks_h)))"
# What is wrong: (text of the target, what stands there instead).
SINKS = {
    "the sink of another head": ("sinks[h]", "sinks[(h + 1) % args.Hq]"),
    "the sink of the key's head": ("sinks[h]", "sinks[h // (args.Hq // args.Hkv)]"),
    "counted twice": (FIRST, FIRST.replace("sum + ", "sum + 2.0 * ")),
    "in base 2": (FIRST, FIRST.replace("(sinks_h", "(sinks_h / LOG2E")),
    "scaled as a score": (FIRST, FIRST.replace("(sinks_h", "(sinks_h * args.scale")),
    "the row maximum left in it": (FIRST, "sum + exp2_approx(sinks_h * LOG2E)"),
    "the row maximum not scaled": (FIRST, FIRST.replace("top * args.scale", "top")),
    "left out of the sum": (FIRST, "sum"),
    "left out of LSE": (LSE, "sum"),
    "in LSE as a number": (LSE, "sum + sinks_h"),
    "LSE of the larger alone": (LSE, "max(sum, sinks_h)"),
    "an empty row's LSE": ("sinks_h if sum == -inf", "-inf if sum == -inf"),
    "added to the weights": ("l = row_reduce(l)", "l = row_reduce(l)\n    s_h = sinks[h]\n"
                             "    l = map(l, lambda x: x + s_h)"),
}  # fmt: skip


GATE = "x * rcp_approx(1.0 + exp2_approx(gate_tile * -1.4426950408889634))"
TILE = "gate[b, h, q0:])"
GATES = {
    "the gate of another head": (TILE, "gate[b, (h + 1) % args.Hq, q0:])"),
    "the gate of the key's head": (TILE, "gate[b, h_kv, q0:])"),
    "the gate of another batch": (TILE, "gate[0, h, q0:])"),
    "the gate of another row": (TILE, "gate[b, h, q0 + 1:])"),
    "the gate's heads and rows exchanged": ("args.gate, args.B, args.Hq, args.Nq,",
                                            "args.gate, args.B, args.Nq, args.Hq,"),
    "without sigmoid": (GATE, "x * gate_tile"),
    "the sigmoid of what is below": (GATE, GATE.replace("-1.44", "1.44")),
    "in base 2": (GATE, GATE.replace(" * -1.4426950408889634", " * -1.0")),
    "silu": (GATE, GATE.replace("x *", "x * gate_tile *")),
    "added": (GATE, GATE.replace("x *", "x +")),
    "taken twice": (GATE, f"{GATE} * {GATE.removeprefix('x * ')}"),
    "before the rows are normalised": ("x * r)", "x * exp2_approx(r))"),
    "left out": (GATE, "x + 0.0 * gate_tile"),
}  # fmt: skip
SPEC = """import math
import torch

def attention(q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hkv Nk D"], v: Float[Tensor, "B Hkv Nk D"]):
    k, v = (t.repeat_interleave(q.size(1) // k.size(1), 1) for t in (k, v))
    s = (q @ k.mT).float() / 8 + 1.0
    z = torch.nn.functional.pad(s, (0, 1))
    return z.softmax(-1)[..., :-1].to(q.dtype) @ v, z.logsumexp(-1) / math.log(2)
"""  # noqa: E501
FILLED_SPEC = """import torch

def attention(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H N D"], v: Float[Tensor, "B H N D"],
    bias: Float[Tensor, "B H N N"], mask: Bool[Tensor, "B N"],
):
    s = (q @ k.mT).float() / 8 + bias
    s = s.masked_fill(~mask[:, None, None], -torch.finfo(s.dtype).max)
    return s.softmax(-1).to(q.dtype) @ v
"""
LATE_SPEC = """import torch

def attention(
    q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hkv Nk D"], v: Float[Tensor, "B Hkv Nk D"],
    share: Float[Tensor, "B Hq Nk"],
):
    k, v = (t.repeat_interleave(q.size(1) // k.size(1), 1) for t in (k, v))
    p = (q @ k.mT / 8).float().softmax(-1)
    later = torch.arange(k.size(2)) > torch.arange(q.size(2))[:, None] + k.size(2) - q.size(2)
    return (p * share[:, :, None]).masked_fill(later, 0.0).to(q.dtype) @ v
"""
TEXTS = {"lse": SPEC, "late": LATE_SPEC, "filled": FILLED_SPEC}
BASE = "lambda x: x * LOG2E"
JOINED = "max(sum, 0.0) + log(1.0 + exp(-abs(sum - 0.0)))"
BASES = {
    "natural": (BASE, "lambda x: x"),
    "divided": (BASE, "lambda x: x / LOG2E"),
    "twice": (BASE, "lambda x: x * LOG2E * LOG2E"),
    "in base 10": (BASE, "lambda x: x * 0.4342944819032518"),
    "of the keys alone": (JOINED, "sum"),
    "in base 2 before the sink": (JOINED, JOINED.replace("sum", "(sum * LOG2E)")),
    "one more, not its logarithm": (JOINED, "sum + 1.0"),
    "the maximum left out": ("top + log(sum)", "log(sum)"),
}  # fmt: skip
ROOT = "rsqrt(total_at / D + 1e-05)"
NORMS = {
    "eps outside the root": (ROOT, "rsqrt(total_at / D) + 1e-05"),
    "another eps": (ROOT, ROOT.replace("05", "06")),
    "the sum for the mean": (ROOT, ROOT.replace(" / D", "")),
    "the root for its inverse": (ROOT, ROOT.replace("rsqrt", "sqrt")),
    "of sizes, not squares": ("lambda x: x * x)", "lambda x: abs(x))"),
    "without the weights": ("weight_columns * x", "x"),
    "one and the weights": ("weight_columns * x", "(1.0 + weight_columns) * x"),
    "another column's weight": ("weight[0:]", "weight[1:]"),
    "before the rows are normalised": ("x * r)", "x)"),
    "its own square alone": ("x * factor_at", "x * rsqrt(x * x + 1e-05)"),
}  # fmt: skip
FACTOR, COLUMN = "x * (share_keys if j <= i + offset else 0.0)", "share[b, h, n * BN:]"
LATE = {
    "the share of another head": (COLUMN, "share[b, (h + 1) % args.Hq, n * BN:]"),
    "the share of another batch": (COLUMN, "share[0, h, n * BN:]"),
    "the share of the next key": (COLUMN, "share[b, h, n * BN + 1:]"),
    "without a mask": (FACTOR, "x * share_keys"),
    "the mask alone": (FACTOR, "x if j <= i + offset else 0.0"),
    "aligned top-left": ("j <= i + offset else", "j <= i else"),
    "the diagonal dropped": ("j <= i + offset else", "j < i + offset else"),
    "the other half": ("j <= i + offset else", "j > i + offset else"),
    "twice": (FACTOR, f"{FACTOR} * share_keys"),
    "added": (FACTOR, FACTOR.replace("x *", "x +")),
    "in the row's sum too": ("exp2_approx(x * scale_log2 - top * scale_log2))\n",
                             "exp2_approx(x * scale_log2 - top * scale_log2))\n"
                             "        s = map(s, lambda x, i, j: x if j <= i + offset else 0.0, "
                             "at=[q0, n * BN])\n"),
}  # fmt: skip
BOTH, TILE_OF = "x - lam_h * other_output_tile", "other_output[b, h, q0:])"
OTHER = {
    "added": (BOTH, BOTH.replace("-", "+")),
    "the factor at the other one": (BOTH, "lam_h * x - other_output_tile"),
    "without the factor": (BOTH, "x - other_output_tile"),
    "the factor twice": (BOTH, BOTH.replace("lam_h", "lam_h * lam_h")),
    "one attention alone": (BOTH, "x - 0.0 * other_output_tile"),
    "the factor of another head": ("lam[h]", "lam[(h + 1) % args.Hq]"),
    "the factor of the key's head": ("lam[h]", "lam[h_kv]"),
    "the same q twice": ("args.q2 if", "args.q if"),
    "the same k twice": ("args.k2 if", "args.k if"),
    "q and k of the wrong launch": ("of_other == 1 else args.q,", "of_other == 0 else args.q,"),
    "the other output of the next head": (TILE_OF, TILE_OF.replace("h,", "(h + 1) % args.Hq,")),
    "the other output of another row": (TILE_OF, TILE_OF.replace("q0", "q0 + 1")),
    "read before it is written": ("[args, 1]", "[args, 0]"),
    "combined in both launches": ("if of_other == 0", "if of_other < 2"),
    "the norm of the first one alone": ("squares = map(o, lambda x: x * x)",
                                        "squares = map(o, other_output_tile, lambda x, y: "
                                        "(x + lam_h * y) * (x + lam_h * y))"),
}  # fmt: skip
ALL = [("lse", wrong, *BASES[wrong]) for wrong in BASES]
ALL += [("sinks_window", wrong, *SINKS[wrong]) for wrong in SINKS]
ALL += [("gated_causal", wrong, *GATES[wrong]) for wrong in GATES]
ALL += [("late", wrong, *LATE[wrong]) for wrong in LATE]
ALL += [("differential_causal", wrong, *OTHER[wrong]) for wrong in OTHER]
ALL += [("output_norm_causal", wrong, *NORMS[wrong]) for wrong in NORMS]


@cache
def right(spec: str) -> Subject:
    if spec not in TEXTS:
        return subject_of(spec)
    path = Path(mkdtemp()) / f"{spec}.py"
    path.write_text(TEXTS[spec])
    recipe, package = read_recipe(path), load_package("flash_fwd_sm80")
    target = lift(package, "bf16_64", package.archs[0]).module
    planned = plan(target, recipe)
    for _, after in apply(target, planned.steps):
        target = after
    return Subject(target, recipe, planned.binding, path, {})


@pytest.mark.parametrize(("spec", "wrong", "old", "new"), ALL, ids=lambda v: str(v)[:30])
def test_a_wrong_version_is_refused(spec: str, wrong: str, old: str, new: str) -> None:
    text = print_module(right(spec).module)
    assert old in text
    module = parse_module(text.replace(old, new))
    failure, _ = run_deck(BY_RECIPE, replace(right(spec), module=module), SMALL, lambda _: None)
    assert failure is not None, wrong


def test_what_is_right_is_not_blamed() -> None:
    """A sink's share of a row is missing from its weights, and a gate is no weight."""
    for spec, (old, new), op in (
        ("sinks_window", SINKS["left out of LSE"], "lse_all = map("),
        ("gated_causal", GATES["the gate of another head"], ""),
    ):
        text = print_module(right(spec).module).replace(old, new)
        parsed = parse_with_tables(text)
        wrong = replace(right(spec), module=parsed.module)
        failure, _ = judge(wrong, lambda _: None)
        assert failure is not None and "add up" not in failure.reason
        assert "another ratio" not in failure.reason and bool(failure.op) == bool(op)
        path = tuple(int(p) if p.isdigit() else p for p in (failure.op or "").split("/"))
        assert not op or text.split("\n")[parsed.lines[path] - 1].strip().startswith(op)


@pytest.mark.parametrize("spec", dict.fromkeys(spec for spec, *_ in ALL))
def test_the_right_version_passes(spec: str) -> None:
    failure, rows = run_deck(BY_RECIPE, right(spec), SMALL, lambda _: None)
    assert failure is None
    assert all("LSE" in row for row in rows[:2])


def test_a_row_that_minus_infinity_took_is_not_held_to_what_is_masked() -> None:
    """The function drops keys by a number, which is more than a bias of -inf: where every kept key
    has such a bias, it averages the dropped ones."""
    case = Case(1, 2, 2, 200, 200, values="bias-inf", modes=("exact",))
    least = Case(1, 2, 2, 150, 150, values="least and -inf")
    failure, (row, *_) = run_deck(BY_RECIPE, right("filled"), [case, least], lambda _: None)
    assert failure is None and 0 < row["rows"] < 400
