"""G2 refuses wrong versions of what happens to q and k before their product."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.deck import Case
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.lower.spelling.legal import legal
from engine.spec import read_recipe
from engine.transfer.rules import apply, plan
from tests.engine.cuir.helpers import faults
from tests.engine.gates.g1_g2.test_judge import edited, subject_of

SMALL = Case(2, 4, 2, 21, 21, modes=("exact",))
ONE = Case(1, 2, 2, 21, 21, modes=("exact",))
ALONE = Case(2, 2, 2, 21, 21, modes=("exact",))
NORM, ROPE, BOTH = "qk_norm_causal", "rope_causal", "qk_norm_rope_causal"
PARTS = "mla_causal"
HEADS = "wan_rms_all_heads"  # of the corpus
Q, K, L = "Q[b, h, row0:]", "K[b, h, row0:]", "load_lines[lines[16, D, 4]]"
WRONG = [
    (NORM, "rsqrt(total_at / D + 1e-06)", "rsqrt(total_at / D) + 1e-06"),
    (NORM, "rsqrt(total_at / D + 1e-06)", "rsqrt(total_at + 1e-06)"),
    (NORM, "rsqrt(total_at / D + 1e-06)", "sqrt(total_at / D + 1e-06)"),
    (NORM, "lambda x: x * x", "lambda x: abs(x)"),
    (NORM, "q_weight_at * x * factor_at", "x * factor_at"),
    (NORM, "q_weight_at * x * factor_at", "(q_weight_at + 1.0) * x * factor_at"),
    (NORM, "(k_weight[0:])", "(k_weight[1:])"),
    (NORM, "gmem[T](args.k_weight, D)", "gmem[T](args.q_weight, D)"),
    (NORM, f"{L}({K}, 0)", f"{L}(K[b, 0, row0:], 0)"),
    (
        NORM,
        "gmem[T](args.k_ready, args.B, args.Hkv, args.Nk, D)\n    V",
        "gmem[T](args.k, args.B, args.Hkv, args.Nk, D)\n    V",
    ),
    (NORM, "store(k_ready[b, h, row0:], ready)", "store(k_ready[b, h, row0:], terms)"),
    (ROPE, "-x_2 if", "x_2 if"),
    (ROPE, "else x_2)", "else -x_2)"),
    (ROPE, f"{L}({Q}, D // 2)", f"{L}({Q}, 1)"),
    (ROPE, f"{L}({K}, D // 2)", f"{L}({K}, 0)"),
    (ROPE, "j < D // 2", "j <= D // 2"),
    (ROPE, "+ (-x_2", "- (-x_2"),
    (ROPE, "(args.sin_input, args", "(args.cos_input, args"),
    (ROPE, "cos_input[b, row0:]", "cos_input[0, row0:]"),
    (ROPE, "sin_input[b, row0:]", "sin_input[b, row0 + 1:]"),
    (ROPE, "% row_tiles * 16", "% row_tiles * 15"),
    (BOTH, "else q_weight_at_3 + 1.0)", "else q_weight_at_2 + 1.0)"),
    (BOTH, "x_2 * factor_at * common_2_at", "x_2 * common_2_at"),
    (BOTH, "x * factor_at * common_at +", "x * common_at +"),
    (BOTH, "(q_weight_at + 1.0) * cos_input_at", "q_weight_at + 1.0"),
    (BOTH, "-1.0 * (q_weight_at_2 + 1.0)", "1.0 * (q_weight_at_2 + 1.0)"),
    (BOTH, "k_prepared = run(prepare_k", "k_prepared = run(prepare_q"),
    (PARTS, "x if j < 128 else q_pe_at", "x if j <= 128 else q_pe_at"),
    (PARTS, "x if j < 128 else k_pe_at", "x if j < 64 else k_pe_at"),
    (PARTS, "x if j < 128 else k_pe_at * cos_input_at +", "x if j < 128 else k_pe_at +"),
    (PARTS, "-q_pe_at_2 if j - 128 < 32", "-q_pe_at_2 if j < 32"),
    (PARTS, f"{L}(k_pe[b, 0, row0:], 0)", f"{L}(k_pe[0, 0, row0:], 0)"),
    (PARTS, f"{L}(k_pe[b, 0, row0:], 32)", f"{L}(k_pe[b, 0, row0:], 16)"),
    (PARTS, f"{L}(q_pe[b, h, row0:], 0)", f"{L}(q_pe[b, 0, row0:], 0)"),
    (PARTS, f"{L}({K}, 0)", f"{L}({K}, 64)"),
    (PARTS, "(args.k_pe, args.B, 1,", "(args.q_pe, args.B, 1,"),
    (PARTS, "sin_input[row0:]", "sin_input[row0 + 1:]"),
    (PARTS, "(args.q_ready, [", "(args.q, ["),
    (HEADS, "range(args.Hq)", "range(1)"),
    (HEADS, "range(args.Hkv)", "range(1, args.Hkv)"),
    (HEADS, "Q[b, g, row0:]", "Q[b, 0, row0:]"),
    (HEADS, "K[b, g, row0:]", "K[0, g, row0:]"),
    (HEADS, "K[b, g, row0:]", "K[b, g, row0 + 1:]"),
    (HEADS, "total_at / (D * args.Hq)", "total_at / D"),
    (HEADS, "rsqrt(total_at / (D * args.Hq) + 1e-06)", "rsqrt(total_at / (D * args.Hq)) + 1e-06"),
    (HEADS, "q_weight[h, 0:]", "q_weight[0, 0:]"),
    (HEADS, "gmem[T](args.k_weight,", "gmem[T](args.q_weight,"),
    (HEADS, "lambda x: x * x", "lambda x: abs(x)"),
]

WRONG_LANDED = [
    ("q_weight_at * x_2 * factor_at", "x_2 * factor_at"),
    ("q_weight_at * x_2 * factor_at", "q_weight_at * x_2"),
    ("q_weight_at * x_2 * factor_at", "(q_weight_at + 1.0) * x_2 * factor_at"),
    ("(q_weight[column_2:])", "(q_weight[0:])"),
    ("gmem[T](args.q_weight, D)", "gmem[T](args.k_weight, D)"),
    ("(sQ[group], column)", "(sQ[group], 0)"),
    ("(sQ[group], column_2, row_2)", "(sQ[group], 0, row_2)"),
    ("(sQ[group], column_2, row_2)", "(sQ[GROUPS - 1 - group], column_2, row_2)"),
    ("column in range(0, COLS, 64)", "column in range(0, 64, 64)"),
    ("column_2 in range(0, COLS, 64)", "column_2 in range(64, COLS, 64)"),
    ("if lead < end:", "if lead + 1 < end:"),
    ("\n                    fence_async()", ""),
    ("total = zeros(row_of[wgmma_acc[64, 64]])", "total = fill(row_of[wgmma_acc[64, 64]], 1.0)"),
    ("wait(q_full[group], round % 2)", "wait(q_full[group], 1 - round % 2)"),
]  # fmt: skip


@cache
def landed() -> Subject:
    return subject_of(NORM, "flash_fwd_sm90", "bf16_128")


@pytest.mark.parametrize(("old", "new"), WRONG_LANDED)
def test_a_wrong_version_of_rows_that_have_landed_fails(old: str, new: str) -> None:
    failure, _ = run_deck(BY_RECIPE, edited(landed(), old, new), [ONE], lambda _: None)
    assert failure is not None


def test_the_right_version_of_rows_that_have_landed_passes_there() -> None:
    assert "prepare_q" not in print_module(landed().module)
    failure, _ = run_deck(BY_RECIPE, landed(), [ONE], lambda _: None)
    assert failure is None


@cache
def subject(spec: str) -> Subject:
    if spec != HEADS:
        return subject_of(spec, "flash_fwd_sm90", "bf16_192") if spec == PARTS else subject_of(spec)
    path = Path(__file__).parents[4] / "benchmarks" / "corpus" / f"{HEADS}.py"
    recipe, package = read_recipe(path), load_package("flash_fwd_sm80")
    target = lift(package, "bf16_64", package.archs[0]).module
    planned = plan(target, recipe)
    for _, after in apply(target, planned.steps):
        target = after
    return Subject(legal(target), recipe, planned.binding, path, {})


def case(spec: str) -> Case:
    return ALONE if spec in (PARTS, HEADS) else SMALL


@pytest.mark.parametrize(("spec", "old", "new"), WRONG)
def test_a_wrong_version_fails(spec: str, old: str, new: str) -> None:
    right = subject(spec)
    if old not in print_module(right.module):
        pytest.fail(f"{old!r} is not in the target:\n{print_module(right.module)}")
    failure, _ = run_deck(BY_RECIPE, edited(right, old, new), [case(spec)], lambda _: None)
    assert failure is not None


@pytest.mark.parametrize("spec", [NORM, ROPE, BOTH, PARTS, HEADS])
def test_the_right_version_passes_there(spec: str) -> None:
    failure, _ = run_deck(BY_RECIPE, subject(spec), [case(spec)], lambda _: None)
    assert failure is None


def test_rows_that_lie_in_memory_are_not_computed_ones_by_the_same_name() -> None:
    """C++ has one type for each; as one name they came as far as the compiler."""
    text = print_module(subject(NORM).module)
    for name in "qk":
        text = text.replace(f"ready = map(row, {name}", f"row = map(row, {name}")
        text = text.replace(f"store({name}_ready[b, h, row0:], ready)",
                            f"store({name}_ready[b, h, row0:], row)")  # fmt: skip
    found = faults(parse_module(text))
    assert {f.kind for f in found} == {"type_mismatch"}
    assert all("give that a name of its own" in f.message for f in found)
