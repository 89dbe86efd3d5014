"""G2 passes what the rules write and fails what is wrong in it, with a counterexample."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import cycle

import pytest

from engine.cuir.nodes import Module, Num
from engine.cuir.parser import parse_module, parse_with_tables
from engine.cuir.printer import print_module
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import constants, edges
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.judge import judge
from engine.gates.runs.branch_coverage import Watch
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.deck_cases import read_cases
from engine.gates.runs.stable_logits import UNUSUAL
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.lower.spelling.legal import legal
from engine.resources import list_specs, spec_path
from engine.service.session.session_options import fixed_head_size
from engine.transfer.binding import Binding
from engine.transfer.rules import apply, plan
from tests.engine.spec.read_once import recipe_of


def subject_of(spec: str, kernel: str = "flash_fwd_sm80", key: str = "bf16_64") -> Subject:
    module, binding = target_of(spec, kernel, key)
    return Subject(module, recipe_of(spec), binding, spec_path(spec), {})


@cache
def target_of(spec: str, kernel: str, key: str) -> tuple[Module, Binding]:
    package = load_package(kernel)
    base = lift(package, key, package.archs[0]).module
    planned = plan(base, recipe_of(spec))
    target = base
    for _, after in apply(base, planned.steps):
        target = after
    return legal(target), planned.binding


def edited(subject: Subject, old: str, new: str) -> Subject:
    text = print_module(subject.module)
    assert text.count(old) >= 1, old
    module = parse_module(text.replace(old, new))
    return Subject(module, subject.recipe, subject.binding, subject.spec, subject.options)


OF_ANY_COLUMNS = [name for name in list_specs() if fixed_head_size(spec_path(name)) is None]


@pytest.mark.parametrize("spec", OF_ANY_COLUMNS)
def test_every_bundled_spec_passes_on_sm80(spec: str) -> None:
    subject = subject_of(spec)
    failure, runs = judge(subject, lambda _: None)
    assert failure is None
    masked = {"under mask"} if subject.recipe.keep != Num(True) else set[str]()
    assert {row["mode"] for row in runs} == {"exact", "typed", "keep set"} | masked


@pytest.mark.parametrize(
    "spec", ["softcap_causal", "sliding_window_causal", "sigmoid", "mla_causal"]
)
def test_specs_pass_on_sm90(spec: str) -> None:
    columns = fixed_head_size(spec_path(spec)) or "128"
    failure, _ = judge(subject_of(spec, "flash_fwd_sm90", f"bf16_{columns}"), lambda _: None)
    assert failure is None


WRONG = [
    ("softcap_causal", "j <= i + offset", "j < i + offset"),
    ("softcap_causal", "j <= i + offset", "j <= i"),
    ("softcap_causal", "x == -inf", "x == -1.0"),
    ("softcap_causal", "- 50.0 + log(sum)", "+ log(sum)"),
    ("softcap_causal", "scale_log2 = 100.0 * LOG2E", "scale_log2 = 50.0 * LOG2E"),
    ("softcap_causal", "min(args.Nk - 1, last + args.Nk - args.Nq) + 1", "args.Nk - BN"),
    ("causal", "and n * BN + BN", "and n * BN - BN"),
    ("sliding_window_causal", "- 1023", "- 1022"),
    ("prefix_lm", "(j <= i) |", "(j <= i + 1) |"),
    ("causal_document", "doc_q[b, q0:]", "doc_q[0, q0:]"),
    ("bias_gqa", "](bias[0, h, q0:], n * BN)", "](bias[0, h, n * BN:], q0)"),
    ("sigmoid", "log(f32(args.Nk))", "log(f32(args.Nq))"),
    ("alibi_causal", "+ slopes", "- slopes"),
    ("full", "h // (args.Hq // args.Hkv)", "h % args.Hkv"),
    ("full", "wait_async(STAGES - 2)", "wait_async(STAGES - 1)"),
]


@pytest.mark.parametrize(("spec", "old", "new"), WRONG)
def test_a_wrong_target_fails(spec: str, old: str, new: str) -> None:
    subject = subject_of(spec)
    if old not in print_module(subject.module):
        pytest.fail(f"{old!r} is not in the target:\n{print_module(subject.module)}")
    failure, _ = judge(edited(subject, old, new), lambda _: None)
    assert failure is not None
    assert failure.op is not None or failure.counterexample is not None or failure.reason


LAX = [  # what a tile's first row or last row lacks by one key
    ("causal", "row0 + args.Nk + 1", "row0 + args.Nk + 2"),
    ("sliding_window_causal", "row0 + args.Nk + 1", "row0 + args.Nk + 2"),
    ("sliding_window_causal", "args.Nq + 1023 >=", "args.Nq + 1024 >="),
    ("sliding_window", "row0 + args.Nk + 257", "row0 + args.Nk + 258"),
    ("sliding_window", "args.Nq + 256 >=", "args.Nq + 257 >="),
]


@cache
def right_at_edges(spec: str, kernel: str) -> bool:
    right = subject_of(spec, kernel, "bf16_128")
    cases = edges(constants(right.recipe.expressions()), tiles_of(right.module))
    return run_deck(BY_RECIPE, right, cases, lambda _: None)[0] is None


@pytest.mark.parametrize(
    ("spec", "old", "new", "kernel"),
    [(*lax, kernel) for lax, kernel in zip(LAX, cycle(("flash_fwd_sm80", "flash_fwd_sm90")))],
)  # each kernel's edges are held by two or three of them
def test_a_tile_that_lacks_one_key_is_not_full(spec: str, old: str, new: str, kernel: str) -> None:
    right = subject_of(spec, kernel, "bf16_128")
    row = "row0" if kernel.endswith("90") else "q0"
    wrong = edited(right, old.replace("row0", row), new.replace("row0", row))
    cases = edges(constants(right.recipe.expressions()), tiles_of(right.module))
    assert set(cases) <= set(read_cases(wrong))
    assert right_at_edges(spec, kernel)
    failure, _ = run_deck(BY_RECIPE, wrong, cases, lambda _: None)
    assert failure is not None and "O is wrong" in failure.reason


TOP = "x * scale_log2 - top * scale_log2"
FIRST_MAX = "m = fill(row_of[mma_acc[BM, D, WARPS]], -inf)"
AFTER = "    l = row_reduce(l)\n"
AT_LEVELS = {
    "maximum from 0": [(FIRST_MAX, FIRST_MAX.replace("-inf", "0.0"))],
    "maximum from -1000": [(FIRST_MAX, FIRST_MAX.replace("-inf", "-1000.0"))],
    "maximum from -65504": [(FIRST_MAX, FIRST_MAX.replace("-inf", "-65504.0"))],
    "nine tenths of the maximum": [
        (TOP, "x * scale_log2 - 0.9 * top * scale_log2"),
        ("(prev - now) * scale_log2", "0.9 * (prev - now) * scale_log2"),
        ("top * args.scale + log(sum)", "0.9 * top * args.scale + log(sum)"),
    ],
    "a term that grows with the maximum": [
        (f"exp2_approx({TOP})", f"exp2_approx({TOP}) + exp2(top * 0.1 - 300.0)")
    ],
    "a term that grows with the sum": [
        (AFTER, f"{AFTER}    l = map(l, lambda sum: sum + exp2(sum - 9000.0))\n")
    ],
    "a term of LSE that grows with the sum": [
        ("args.scale + log(sum)", "args.scale + log(sum) + exp2(sum - 20000.0)")
    ],
}


@pytest.mark.parametrize(("name", "key"), [*zip(AT_LEVELS, cycle(("f16_64", "bf16_128")))])
def test_logits_far_from_0_and_long_sums_are_in_the_deck(name: str, key: str) -> None:
    """An edit that is right where logits lie around 0, and nowhere else."""
    wrong = right = subject_of("full", key=key)
    for old, new in AT_LEVELS[name]:
        wrong = edited(wrong, old, new)
    watched = replace(wrong, watch=Watch.of(right.module, wrong.module))
    cases = [c for c in read_cases(watched) if c.values in UNUSUAL]
    failure, _ = run_deck(BY_RECIPE, watched, cases, lambda _: None)
    assert failure is not None and failure.reason


def test_every_specs_rules_hold_far_from_0() -> None:
    """With the element type whose largest number is the nearest; the bound stays tight."""
    for spec in ("full", "alibi_causal", "softcap_causal", "sigmoid", "prefix_lm_document"):
        subject = subject_of(spec, key="f16_128")
        cases = [c for c in read_cases(subject) if c.values in UNUSUAL]
        failure, rows = run_deck(BY_RECIPE, subject, cases, lambda _: None)
        assert failure is None
        assert {row["mode"] for row in rows} == {"exact", "typed"}
        assert not any("skipped" in row for row in rows)


def test_pytorchs_error_is_small_far_from_0() -> None:
    """A bound that is no fraction of O would take a kernel that gives 0."""
    for key in ("bf16_64", "f16_64"):
        subject = subject_of("full", key=key)
        cases = [c for c in read_cases(subject) if c.values == "level"]
        _, rows = run_deck(BY_RECIPE, subject, cases, lambda _: None)
        assert all(0 < row["bound"] < 0.01 for row in rows if row["mode"] == "typed")


def test_a_counterexample_names_the_pair() -> None:
    subject = subject_of("causal")
    wrong = edited(subject, "j <= i + offset", "j < i + offset")
    failure, _ = judge(wrong, lambda _: None)
    assert failure is not None and failure.counterexample is not None
    assert {"b", "h", "i"} <= set(failure.counterexample)
    assert "expected" in failure.reason


def test_a_race_is_found_at_its_op() -> None:
    subject = subject_of("full")
    text = print_module(subject.module)
    lines = text.split("\n")
    at = next(n for n, line in enumerate(lines) if line.strip() == "sync()")
    module = parse_module("\n".join(lines[:at] + lines[at + 1 :]))
    racy = Subject(module, subject.recipe, subject.binding, subject.spec, {})
    failure, _ = judge(racy, lambda _: None)
    assert failure is not None and failure.op is not None
    assert failure.op.startswith("flash_fwd/")


SCORE = r"        s = map\(s, lambda x: rcp_approx.*\n"


@pytest.mark.parametrize(
    ("old", "new", "words", "op"),
    [
        (SCORE, "", "another ratio to its row", "m = row_max("),
        (r"j <= i \+ offset", "j < i + offset", "the keep predicate masks", "s = keep("),
        (
            r"(max\(0, .*)last \+ args.Nk - args.Nq\) \+ 1",
            r"\g<1>0)",
            "the schedule never visits",
            "return max(",
        ),
        (r"and n \* BN \+ BN \+", "and n * BN - BN +", "counts as full", "return (n + 1)"),
        (r"score_factor = ", "score_factor = 2.0 * ", "another ratio to its row", "s = map("),
    ],
    ids=["no score", "predicate", "schedule", "full", "score"],
)
def test_the_op_that_is_wrong_is_named(old: str, new: str, words: str, op: str) -> None:
    """A weight that underflows is 0 as a masked one is: that is no fault of the mask."""
    subject = subject_of("softcap_causal")
    text, count = re.subn(old, new, print_module(subject.module))
    assert count == 1
    parsed = parse_with_tables(text)
    wrong = Subject(parsed.module, subject.recipe, subject.binding, subject.spec, {})
    failure, _ = judge(wrong, lambda _: None)
    assert failure is not None and failure.op is not None and words in failure.reason
    path = tuple(int(part) if part.isdigit() else part for part in failure.op.split("/"))
    assert text.split("\n")[parsed.lines[path] - 1].strip().startswith(op)


@pytest.mark.parametrize(
    ("old", "new", "words", "op"),
    [
        (
            r"(        l = map\(l, alpha, .*\n)(        l = row_sum\(s, l\)\n)",
            r"\2\1",
            "all weights of row i=0 are 0, those of the spec add up to 1",
            "o = map(o, inverse",
        ),
        (
            r"(        m_prev = m\n)",
            r"        s = map(s, lambda x: max(x, -5.0))\n\1",
            r"the weight of the pair i=\d+, j=\d+ is 0\.\d+, in the spec 0$",
            "s = keep(",
        ),
    ],
    ids=["sum", "floor"],
)
def test_a_schedule_is_blamed_only_for_what_it_does(
    old: str, new: str, words: str, op: str
) -> None:
    """A weight of 0 is no proof that its tile is not visited, nor another one that it is full."""
    subject = subject_of("causal")
    text, count = re.subn(old, new, print_module(subject.module))
    assert count == 1
    parsed = parse_with_tables(text)
    wrong = Subject(parsed.module, subject.recipe, subject.binding, subject.spec, {})
    failure, _ = judge(wrong, lambda _: None)
    assert failure is not None and failure.op is not None and re.search(words, failure.reason)
    path = tuple(int(part) if part.isdigit() else part for part in failure.op.split("/"))
    assert text.split("\n")[parsed.lines[path] - 1].strip().startswith(op)
