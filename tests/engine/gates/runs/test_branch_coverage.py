"""What counts as a condition, where, and for which elements."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.analysis.conditions import conditions, new_conditions
from engine.gates.deck import Case
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.reachability import untested_branches as untested
from engine.gates.reachability.untested_branches import other_sides
from engine.gates.reachability.witness_search import Reaches
from engine.gates.runs.branch_coverage import Watch
from engine.gates.runs.case_run import exact
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.transfer.rules import plan
from tests.engine.gates.g1_g2.test_judge import OF_ANY_COLUMNS
from tests.engine.spec.read_once import recipe_at, recipe_of

PACKAGE = load_package("flash_fwd_sm80")
BASE = lift(PACKAGE, "bf16_64", PACKAGE.archs[0]).module
assert PACKAGE.reference is not None
PLAIN = recipe_at(PACKAGE.reference)
LOOP_END = "    l = row_reduce(l)\n"
SMALL = Case(1, 2, 1, 70, 40, modes=("exact",))


def edited(new: str, old: str = LOOP_END) -> Subject:
    """The plain kernel with `new` put after `old`, as somebody's with a free hand."""
    text = print_module(BASE)
    assert text.count(old) == 1, old
    module = parse_module(text.replace(old, old + new))
    binding = plan(BASE, PLAIN).binding
    assert PACKAGE.reference is not None
    watch = Watch.of(BASE, module)
    return Subject(module, PLAIN, binding, PACKAGE.reference, {}, watch)


def unseen(subject: Subject, *cases: Case) -> list[str]:
    """The sides that no run of the cases takes."""
    for seed, case in enumerate(cases):
        exact(BY_RECIPE, subject, case, seed)
    assert subject.watch is not None
    return [one.words(side) for one, side in subject.watch.unseen()]


def test_a_number_of_a_block_is_decided_in_a_run() -> None:
    subject = edited("    if block_id(0) > 70000:\n        l = map(l, lambda sum: sum * 2.0)\n")
    assert unseen(subject, SMALL) == ["`block_id(0) > 70000` (flash_fwd)"]
    found = Reaches(subject).of(new_conditions(BASE, subject.module)[0], True)
    assert found.possible


@pytest.mark.parametrize("call", ["grid_dim(0)", "sm_count()"])
def test_so_is_what_a_launch_or_a_card_gives(call: str) -> None:
    place = "    WARPS = 4\n" if call == "sm_count()" else LOOP_END
    module = edited(f"    late = 1 if {call} > 70000 else 0\n", place).module
    assert new_conditions(BASE, module)[0].words(True).startswith(f"`{call} > 70000`")


def test_constants_of_the_build_are_not() -> None:
    module = edited("    late = 1 if BM > 70000 and sizeof(T) > STAGES else 0\n").module
    assert new_conditions(BASE, module) == ()


def test_a_condition_is_asked_for_in_each_place() -> None:
    """A nest of conditions beside harmless copies of each of them."""
    copies = "".join(
        f"    if {test}:\n        l = map(l, lambda sum: sum * 1.0)\n"
        for test in ("args.Nq > 60", "args.Nk > 60", "args.B > 1")
    )
    nest = (
        "    if args.Nq > 60:\n        if args.Nk > 60:\n            if args.B > 1:\n"
        "                l = map(l, lambda sum: sum * 2.0)\n"
    )
    cases = [SMALL, *(replace(SMALL, Nq=8, Nk=70, B=b) for b in (1, 2))]
    assert unseen(edited(copies), *cases) == []
    assert unseen(edited(copies + nest), *cases) == [
        "`args.Nk > 60` (flash_fwd)",
        "`args.B > 1` (flash_fwd)", "`args.B <= 1` (flash_fwd)",
    ]  # fmt: skip


def test_a_condition_of_the_base_is_new_where_it_stands_once_more() -> None:
    once = edited("    if tiles < 0:\n        l = map(l, lambda sum: sum * 2.0)\n").module
    text = print_module(once)
    twice = parse_module(
        text.replace("    if tiles < 0:\n", "    if tiles < 0:\n        sync()\n" * 2)
    )
    assert new_conditions(once, once) == ()
    assert {c.words(True) for c in new_conditions(once, twice)} == {"`tiles < 0` (flash_fwd)"}


@pytest.mark.parametrize(
    "way",
    [
        "(sum * 2.0 if i > 30 else sum) if i < 20 else sum",
        "sum * 2.0 if i < 20 and i > 30 else sum",
        "sum if i >= 20 or i <= 30 else sum * 2.0",
        "sum if i >= 20 else (sum if i <= 30 else sum * 2.0)",
    ],
)
def test_an_element_counts_where_its_way_is_taken(way: str) -> None:
    """Both ways of a choice are evaluated on all elements: only those of that way are shown."""
    subject = edited(f"    l = map(l, lambda sum, i: {way}, at=[q0, 0])\n")
    assert any("30" in words and "20" not in words for words in unseen(subject, SMALL))


@pytest.mark.parametrize(
    ("lines", "test"),
    [
        ("    late = q0 * 0.0003\n    wide = 1.0 + i32(late)\n", "i32(late) != 0"),
        ("    wide = 1.0 + i32(args.scale)\n", "i32(args.scale) != 0"),
        ("    wide = 1.0 + i64(LSE[b, h, q0])\n", "i64(LSE[b, h, q0]) != 0"),
    ],
)
def test_a_cast_of_a_float_to_a_whole_number_is_a_step(lines: str, test: str) -> None:
    found = [c.words(True) for c in new_conditions(BASE, edited(lines).module)]
    assert any(words.startswith(f"`{test}`") for words in found), found


def test_a_cast_of_a_whole_number_is_none() -> None:
    module = edited("    late = q0 * 3\n    wide = i64(late) + i32(h)\n").module
    assert new_conditions(BASE, module) == ()


def test_rows_past_the_last_one_count_for_nothing() -> None:
    """Their queries are 0, and so are their maxima; a lambda need not say which rows it has."""
    subject = edited("    l = map(l, m, lambda sum, top: sum * 2.0 if top * 2.0 == 0.0 else sum)\n")
    assert unseen(subject, SMALL) == ["`top * 2.0 == 0.0` (flash_fwd)"]


@pytest.mark.parametrize(
    "guard",
    [
        "0.0 if top == -inf else sum",
        "sum if -inf < top else 0.0",
        "sum if sum > 0.0 else 0.0",
        "0.0 if sum != sum else sum",
        "sum if sum != 0.0 else 1.0",
    ],
)
def test_a_guard_of_rows_that_keep_no_key_need_not_fire(guard: str) -> None:
    subject = edited(f"    l = map(l, m, lambda sum, top: {guard})\n")
    assert new_conditions(BASE, subject.module)
    assert unseen(subject, SMALL) == []


@pytest.mark.parametrize(
    "lines",
    [
        "    l = map(l, lambda sum: sum * 2.0 if sum == 1.0 else sum)\n",
        "    l = map(l, lambda sum: sum * 2.0 if sum > 1.0e9 else sum)\n",
        "    late = map(l, lambda sum: sum - args.Nk)\n"
        "    l = map(l, late, lambda sum, x: sum * 2.0 if x == 0.0 else sum)\n",
        "    late = map(l, lambda sum, i: i - 3290.0, at=[q0, 0])\n"
        "    l = map(l, late, lambda sum, x: sum * 2.0 if x == 0.0 else sum)\n",
    ],
)
def test_no_other_condition_on_a_row_is_such_a_guard(lines: str) -> None:
    subject = edited(lines)
    assert any("==" in words or ">" in words for words in unseen(subject, SMALL))


@pytest.mark.parametrize("name", OF_ANY_COLUMNS)
def test_guards_that_the_rules_write_are_known_as_such(name: str) -> None:
    recipe = recipe_of(name)
    module: Module = reduce(lambda m, step: step.apply(m), plan(BASE, recipe).steps, BASE)
    guards = [c for c in conditions(module) if "-inf" in c.words(True)]
    assert all(one.sides == (False,) for one in guards)
    assert guards or recipe.weight is not None or name == "full"


def test_a_coordinate_is_within_its_length_whatever_it_is_called() -> None:
    """`row >= 0` has no other side, at any size."""
    subject = edited("    l = map(l, lambda sum, row: sum if row >= 0 else 0.0, at=[q0, 0])\n")
    (one,) = new_conditions(BASE, subject.module)
    assert not Reaches(subject).of(one, False).possible


def searched(subject: Subject) -> tuple[str, list[str]]:
    """The reason of a failed search for the sides that a small run leaves, and the cases of it."""
    unseen(subject, SMALL)
    failure, _, cases = other_sides(BY_RECIPE, subject, [SMALL], lambda _: None)
    return "" if failure is None else failure.reason, [str(c) for c in cases[1:]]


def harmless(*tests: str) -> Subject:
    return edited(
        "".join(f"    if {t}:\n        l = map(l, lambda sum: sum * 1.0)\n" for t in tests)
    )


def test_a_case_that_serves_many_conditions_runs_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untested, "MAX_CASES", 1)
    reason, cases = searched(harmless(*(f"args.Nk > {200 + n}" for n in range(4))))
    assert reason == "" and len(cases) == 1


def test_a_search_that_is_cut_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untested, "MAX_CASES", 1)
    reason, cases = searched(harmless("args.Nk > 200", "args.B > 40"))
    assert len(cases) == 1
    assert "more conditions are new than 1 runs" in reason and "was not run" in reason
    monkeypatch.setattr(untested, "MAX_CASES", 2)
    assert searched(harmless("args.Nk > 200", "args.B > 40"))[0] == ""


def test_what_a_table_alone_rules_out_is_said_to_be_sampled() -> None:
    subject = harmless("f32(args.Nk) < 0.0", "args.Nq < 0")
    assert searched(subject)[0] == "" and subject.watch is not None
    words = subject.watch.words()
    assert "f32(args.Nk) < 0.0" in words and "was sampled" in words and "more" not in words
    assert not re.search(r"\b(all|every|each|any)\b", words)


def test_a_key_of_a_pair_is_one_where_another_lambda_has_it_alone() -> None:
    """The padding of a tile counts for nothing, so `j >= Nk` has no run and needs none."""
    lines = (
        "    low = least[BN](lambda j: j * 2, at=[0])\n"
        "    kind = class_of[BM, BN](lambda i, j: i * 0 <= low and j < args.Nk, at=[q0, 0])\n"
    )
    subject = edited(lines)
    (one,) = (c for c in new_conditions(BASE, subject.module) if c.words(True)[:2] == "`j")
    reaches = Reaches(subject)
    assert reaches.of(one, True).possible
    assert not reaches.of(one, False).possible
