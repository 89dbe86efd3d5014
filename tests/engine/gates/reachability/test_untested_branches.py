"""What somebody wrote with a free hand is seen both ways, or it does not pass.

Each of these edits is right at every size of the deck and wrong beyond it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.cuir.nodes import Binary, Module
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_module
from engine.gates.analysis.conditions import new_conditions
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import Case, quick
from engine.gates.g1_g2 import judge as judging
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.judge import judge, judge_json
from engine.gates.reachability.untested_branches import _long_case, _to_try
from engine.gates.reachability.witness_search import Reach, Reaches
from engine.gates.runs.branch_coverage import Watch
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.deck_cases import MORE_KEYS, bent, drawn_cases, read_cases, unforeseen
from engine.gates.runs.subject import Subject, at_sight
from engine.lift import lift, load_package
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.binding import ScalarField
from engine.transfer.rules import plan
from tests.engine.gates.g1_g2.test_judge import subject_of
from tests.engine.spec.read_once import recipe_at

LOOP_END = "    l = row_reduce(l)\n"
WHOLE = "return (n + 1) * BN <= args.Nk\n"


PACKAGE = load_package("flash_fwd_sm80")
assert PACKAGE.reference is not None
PLAIN = recipe_at(PACKAGE.reference)
ONE = parse_expr(" * ".join(f"(f32({n}) / f32({n}))" for n in ("B", "Hq", "Hkv", "Nq", "Nk")))


def base_and_subject() -> tuple[Module, Subject]:
    """The kernel, and a score in which each size has a part: floats of sizes are no fault then."""
    module = lift(PACKAGE, "bf16_64", PACKAGE.archs[0]).module
    recipe = replace(PLAIN, score=Binary("*", PLAIN.score, ONE))
    binding = plan(module, PLAIN).binding
    assert PACKAGE.reference is not None
    return module, Subject(module, recipe, binding, PACKAGE.reference, {})


def edited(old: str, new: str) -> Subject:
    """The kernel with one change, judged as what a model or a person wrote."""
    base, subject = base_and_subject()
    text = print_module(base)
    assert text.count(old) == 1, old
    module = parse_module(text.replace(old, new))
    return replace(subject, module=module, watch=Watch.of(base, module))


def wrong_sum(condition: str, before: str = "") -> tuple[str, str]:
    """The row sum is doubled where `condition` holds."""
    edit = f"    l = map(l, lambda sum: sum * 2.0 if {condition} else sum)\n"
    return LOOP_END, LOOP_END + before + edit


def wrong_factor(factor: str) -> tuple[str, str]:
    """The row sum is multiplied by what is 1 at small sizes."""
    return LOOP_END, LOOP_END + f"    wide = {factor}\n    l = map(l, lambda sum: sum * wide)\n"


LAUNDERED = {
    "scale": wrong_sum("args.Nk * 1.0 > args.scale * 26320.0"),
    "cast": wrong_sum("f32(args.Nk) > 3290.5"),
    "equal": wrong_sum("f32(args.Nk) == args.scale * 26320.0"),
    "far beyond": wrong_sum("args.Nk * 0.5 > 1.0e6"),
    "loaded": wrong_sum("f32(args.Nk) * sum > 1.0e9 * f32(args.Hq)"),
    "by a name": wrong_sum("late > 0.0", "    late = args.Nq * 1.0 - 3290.0\n"),
    "by a flag": wrong_sum("late", "    late = args.Nq * 1.0 > 3290.0\n"),
    "batch": wrong_sum("f32(b) > 77.5"),
    "heads": wrong_sum("f32(args.Hq) * 0.1 > 7.75"),
    "product": wrong_sum("f32(args.Nq) * f32(args.Nk) > 6.0e6"),
    "and": wrong_sum("f32(args.Nq) > 500.0 and f32(args.Nk) < 3.5"),
    "max": wrong_factor("1.0 + max(0.0, args.Nk * 0.5 - 1645.0)"),
    "min": wrong_factor("1.0 + min(3290.0 - args.Nk * 1.0, 0.0)"),
    "abs": wrong_factor("(abs(3290.0 - f32(args.Nk)) + 3290.0 - f32(args.Nk)) / "
                        "(6580.0 - 2.0 * f32(args.Nk))"),
    "floor": wrong_factor("1.0 + floor(args.Nk * 0.0003)"),
    "integer cast": wrong_factor("1.0 + i32(args.Nk * 0.0003)"),
    "quotient": wrong_factor("1.0 + f32(args.Nk // (args.Hkv * 3290))"),
    "shift": wrong_factor("1.0 + f32(args.Nk >> 12)"),
    "bits": wrong_factor("1.0 + f32(args.Nk & 4096)"),
    "far bits": wrong_factor("1.0 + f32((args.Nk * 64) >> 18)"),
    "loop": (LOOP_END, LOOP_END + "    for late in range(3290, args.Nk):\n"
             "        l = map(l, lambda sum: sum * 2.0)\n"),
    "after a loop that returns": (WHOLE, "for late in range(300):\n        if late * 100 >= args.Nk"
                                  f":\n            {WHOLE}    return True\n"),
    "branch": (LOOP_END, LOOP_END + "    if args.Nk * 1.0 > 3290.0:\n"
               "        l = map(l, lambda sum: sum * 2.0)\n"),
    "row": ("lambda x, r: x * r)", "lambda x, r, i, j: x * (r if i * 1.0 < 3290.0 else 0.0), "
            "at=[q0, 0])"),
    "key": ("lambda i, j: j < args.Nk", "lambda i, j: j < args.Nk and j * 1.0 < 3290.0"),
    "row of the padding": ("lambda x, r: x * r)", "lambda x, r, i, j: x * "
                           "(r if i * 1.0 < 254.5 else 0.0), at=[q0, 0])"),
    "data": wrong_sum("sum > 1.0e9"),
    "a clamp that never clamps": (LOOP_END, LOOP_END + "    l = map(l, lambda sum: "
                                  "min(sum, 1.0e9))\n"),
    "whole tile": (WHOLE, WHOLE.replace("<= args.Nk", "<= args.Nk or n * 1.0 > 77.0")),
    "polynomial": wrong_factor(
        "1.0 + " + " * ".join(f"(f32(args.Nk) * 0.01 - {n * 0.01})"
                              for n in sorted({c.Nk for c in quick()}))
    ),
    "steep": wrong_factor("1.0 + exp2(f32(args.Nk) * 0.25 - 200.0)"),
}  # fmt: skip

# What is judged by its conditions needs no more than a few runs; these two have none.
SEEN_BY_THE_DECK = {"polynomial", "steep"}
FEW = [Case(1, 2, 1, 70, 40, modes=("exact",)), Case(2, 2, 2, 5, 130, modes=("exact",))]
ON_LITTLE = replace(BY_RECIPE, deck=lambda _: FEW)


@pytest.mark.parametrize("name", LAUNDERED)
def test_what_is_right_on_a_deck_only_does_not_pass(name: str) -> None:
    way = BY_RECIPE if name in SEEN_BY_THE_DECK else ON_LITTLE
    failure, _ = judge(edited(*LAUNDERED[name]), lambda _: None, way)
    assert failure is not None
    said = ("no run has", "is wrong", "makes a float of a place")
    assert any(words in failure.reason for words in said), failure.reason


@pytest.mark.parametrize(
    "change",
    [
        wrong_factor("1.0 + exp2(f32(args.Nk) * 0.25 - 20000.0)"),
        wrong_factor("1.0 + exp2((args.Nk - args.Nq) * 0.25 - 20000.0)"),
        wrong_factor("1.0 + rcp(fma(1.0, args.B, -7.0e4))"),
        wrong_sum("args.scale * 26320.0 < args.Hq"),
        (LOOP_END, LOOP_END + "    late = args.Nk + 1\n    l = map(l, lambda sum: sum + late)\n"),
    ],
)
def test_where_no_score_has_a_size_none_becomes_a_float(change: tuple[str, str]) -> None:
    """Steep functions of a length are nothing at all at the sizes that a CPU can run."""
    subject = edited(*change)
    assert at_sight(subject) is None
    failure = at_sight(replace(subject, recipe=PLAIN))
    assert failure is not None and "makes a float of the size" in failure.reason
    assert failure.op is not None and failure.op.startswith("flash_fwd/")


def test_a_scalar_that_the_edit_binds_is_no_way_round() -> None:
    subject = replace(
        edited(LOOP_END, LOOP_END + "    l = map(l, lambda x: x + 0.0)\n"), recipe=PLAIN
    )
    assert at_sight(subject) is None
    scalars = (ScalarField("scale", parse_expr("rsqrt(f32(D)) + exp2(Nk * 0.25 - 20000.0)")),)
    binding = replace(subject.binding, scalars=scalars)
    failure = at_sight(replace(subject, binding=binding))
    assert failure is not None and "makes a float of the size Nk" in failure.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        wrong_sum("f32(args.Nk) < 0.0"),  # never so: there is no such branch
        wrong_sum("args.Nk * 1.0 + 1.0 == args.Nk * 1.0"),
        (WHOLE, "last = (n + 1) * BN\n    return last <= args.Nk\n"),
        (WHOLE, "return args.Nk >= (n + 1) * BN and n >= 0\n"),
        (LOOP_END, LOOP_END + "    l = map(l, m, lambda sum, top: 0.0 if top == -inf else sum)\n"),
    ],
)
def test_what_has_no_other_side_passes(old: str, new: str) -> None:
    failure, _ = judge(edited(old, new), lambda _: None, ON_LITTLE)
    assert failure is None, failure.reason


def test_rules_are_not_asked_for_both_sides() -> None:
    base, subject = base_and_subject()
    assert new_conditions(base, base) == ()
    module = edited(*LAUNDERED["cast"]).module
    failure, _ = judge(replace(subject, module=module), lambda _: None)
    assert failure is None  # a deck alone cannot see it: which is why a free hand is watched


def test_a_name_that_means_something_else_is_new() -> None:
    """The text of a condition of the kernel, over a name that the edit has made another."""
    base, _ = base_and_subject()
    text = print_module(base)
    old = "    blocks = ceil_div(args.Nq, BM) * args.Hq * args.B\n"
    made = parse_module(text.replace(old, old.replace("args.B", "args.B // 5000")))
    assert [c.words(True) for c in new_conditions(base, made)][-1] == "`blocks == 0` (launch)"


def test_a_guard_of_the_base_is_known_beside_more_operands() -> None:
    base, _ = base_and_subject()
    text = print_module(base)
    lse = "lse = map(m, l, lambda top, sum:"
    assert text.count(lse) == 1
    more = text.replace(lse, "lse = map(m, l, inverse, lambda top, sum, r:")
    assert new_conditions(base, parse_module(more)) == ()
    other = text.replace(lse, "lse = map(l, m, lambda top, sum:")
    assert len(new_conditions(base, parse_module(other))) == 1


@pytest.mark.parametrize(
    ("filled", "sides"),
    [("args.scale", (False,)), ("LSE[b, h, 0] / args.scale", (False,)),
     ("args.Nk * 1.0", (True, False)), ("f32(q0)", (True, False)),
     ("LSE[b, h, q0]", (True, False)), ("LSE[b, h, args.Nk - 1]", (True, False))],
)  # fmt: skip
def test_a_maximum_that_begins_at_data_is_a_statistic(filled: str, sides: tuple[bool, ...]) -> None:
    """As one that begins at a sink, which is no row's place and no size."""
    base, _ = base_and_subject()
    text = print_module(base)
    start = next(line for line in text.split("\n") if line.strip().startswith("m = fill("))
    text = text.replace(start, start.replace("-inf)", f"{filled})"))
    guard = "    m_ok = map(m, lambda x: 0.0 if x == -inf else x)\n"
    text = text.replace(LOOP_END, guard + LOOP_END)
    found = [c for c in new_conditions(base, parse_module(text)) if "x == -inf" in c.words(True)]
    assert [c.sides for c in found] == [sides]


def test_sizes_that_nobody_foresees_are_the_texts_own() -> None:
    base, _ = base_and_subject()
    deck = quick()
    cases = unforeseen(base, deck)
    assert cases == unforeseen(base, deck)
    assert cases != unforeseen(edited(*LAUNDERED["cast"]).module, deck)
    assert max(c.Nk for c in cases) > max(c.Nk for c in deck)
    assert max(c.Nq for c in cases) > max(c.Nq for c in deck)
    assert max(c.Hq for c in cases) > max(c.Hq for c in deck)
    assert max(c.B for c in cases) > max(c.B for c in deck)


def test_sizes_that_nobody_foresees_are_beyond_what_runs() -> None:
    """A spec of squares alone runs none as long as the longest row of keys of other specs: 66 tiles
    of keys, and 2,500 more, are a hundred million pairs."""
    right = subject_of("share_question")
    without = [replace(c, modes=()) for c in read_cases(right)]
    watched = replace(right, watch=Watch.of(right.module, right.module))
    more = [c for c in read_cases(watched) if replace(c, modes=()) not in without]
    assert more and all(c.Nq == c.Nk for c in more)
    longest = max(c.Nk for c in without)
    assert longest < max(c.Nk for c in more) <= longest + MORE_KEYS


def test_a_branch_on_ids_is_looked_for_in_longer_draws() -> None:
    """A whole tile of padding before a block of padding is in no short draw."""
    base, _ = base_and_subject()
    right = subject_of("share_question")
    subject = replace(right, watch=Watch.of(base, right.module))
    assert subject.watch is not None
    (one,) = (
        c for c in subject.watch.watched
        if c.words(False) == "`segment_keys_low < 0` (class_tiles)"
    )  # fmt: skip
    deck = [bent(subject, c) for c in drawn_cases(tiles_of(subject.module))[:1]]
    failure, _ = run_deck(BY_RECIPE, subject, [c for c in deck if c is not None], lambda _: None)
    assert failure is None and subject.watch.has(one, False)


def test_longer_draws_are_tried_also_where_few_rows_and_keys_might_do() -> None:
    """A second block of rows of which no row keeps a key needs no more than one key, and padding
    that is drawn for so few of them hardly ever."""
    few = (Case(1, 1, 1, 248, 1, modes=("exact",)), Case(1, 1, 1, 249, 1, modes=("exact",)))
    subject = subject_of("causal_document")
    drawn = drawn_cases(tiles_of(subject.module))
    assert _to_try(subject, Reach(True, few)) == [few[0], *drawn, few[1]]
    assert _to_try(subject_of("full"), Reach(True, few)) == [*few]


@pytest.mark.parametrize(
    ("spec", "sizes", "long"),
    [
        ("share_question", (1, 1, 7057), 7057),
        ("share_question", (2, 1, 7057), None),  # twice as much
        ("share_question", (1, 1, 900), None),  # runs anyhow
        ("document", (1, 1, 7057), None),  # one row will do
    ],
)
def test_one_long_case_is_afforded_where_squares_alone_run(
    spec: str, sizes: tuple[int, int, int], long: int | None
) -> None:
    subject = subject_of(spec)
    batches, rows, keys = sizes
    case = _long_case(subject, Reach(True, (Case(batches, 1, 1, rows, keys),)))
    assert (case and (case.Nq, case.Nk)) == (long and (long, long))


def test_a_case_is_found_for_the_other_side() -> None:
    subject = edited(*LAUNDERED["and"])
    assert subject.watch is not None
    reaches = Reaches(subject)
    found = {c.words(True): reaches.of(c, True) for c in subject.watch.watched}
    (both,) = (r for words, r in found.items() if " and " in words)
    assert both.possible and both.cases[0].Nq > 500 and both.cases[0].Nk <= 3


def test_the_verdict_in_json_asks_for_both_sides_where_a_base_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judging, "BY_RECIPE", ON_LITTLE)
    base, subject = base_and_subject()
    edit = edited(*LAUNDERED["far beyond"])
    payload: dict[str, Any] = {
        "module": print_module(edit.module), "recipe": recipe_to_json(subject.recipe),
        "binding": subject.binding.to_json(), "spec": str(subject.spec),
    }  # fmt: skip
    verdict = judge_json(payload | {"base": print_module(base)}, lambda _: None)
    assert not verdict["ok"]
    assert "no run has `args.Nk * 0.5 > 1.0e6` (flash_fwd)" in verdict["reason"].replace(
        "1000000.0", "1.0e6"
    )
    assert "it could be so at" in verdict["reason"]
    assert verdict["details"]["op"].startswith("flash_fwd/")


def test_names_that_stand_for_ever_more_names_end() -> None:
    """A text of eight lines that would be a hundred million operations, written out."""
    lines = ["    a0 = args.Nk * 1.0\n"]
    lines += [f"    a{n + 1} = {' + '.join([f'a{n}'] * 10)}\n" for n in range(8)]
    old, new = wrong_sum("a8 > 1.0e13", "".join(lines))
    subject = edited(old, new)
    assert subject.watch is not None
    failure, _ = judge(subject, lambda _: None, ON_LITTLE)
    assert failure is not None and "no run has `a8 > 1" in failure.reason
    assert at_sight(replace(subject, recipe=PLAIN)) is not None
