"""Which sides a condition has: where its function is called, and under which conditions there."""

from __future__ import annotations

import pytest

from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.analysis.conditions import Condition, conditions, new_conditions
from engine.gates.reachability.witness_search import Reach, Reaches
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from tests.engine.gates.g1_g2.test_judge import edited, subject_of

AFTER = "    l = row_reduce(l)\n"


def only(subject: Subject, base: Subject, words: str) -> Condition:
    (one,) = (
        c for c in new_conditions(base.module, subject.module) if c.words(True).startswith(words)
    )
    return one


UNCLIPPED = "    end = ceil_div(min(args.Nk - 1, last + args.Nk - args.Nq) + 1, BN)\n"
CLIPPED = UNCLIPPED.replace("ceil_div", "max(0, ceil_div").replace("BN)", "BN))")
OF_CLIPPED = "`0 < ceil_div(min(args.Nk - 1, last + args.Nk - args.Nq) + 1, BN)`"


def clipped() -> Subject:
    """The causal mask's `tile_lead` with an end that is no less than 0, which is as right."""
    return edited(subject_of("causal", "flash_fwd_sm90", "bf16_128"), UNCLIPPED, CLIPPED)


def test_a_function_is_asked_under_its_callers_conditions() -> None:
    """The workers call `tile_lead` where a block has tiles at all, so some hold keys."""
    subject = clipped()
    found = [c for c in conditions(subject.module) if c.path[0] == "tile_lead"]
    (one,) = (c for c in found if c.words(True).startswith(OF_CLIPPED))
    reaches = Reaches(subject)
    assert reaches.of(one, True).possible
    assert not reaches.of(one, False).possible


def test_without_the_callers_condition_it_has_its_other_side() -> None:
    wrong = edited(clipped(), "if tiles > 0:", "if tiles >= 0:")
    (one,) = (
        c for c in conditions(wrong.module)
        if c.path[0] == "tile_lead" and c.words(True).startswith(OF_CLIPPED)
    )  # fmt: skip
    assert Reaches(wrong).of(one, False).possible


def test_a_loop_of_the_same_name_elsewhere_says_nothing_of_a_loop() -> None:
    """A second loop of one round, after the first, gives `step` no end there."""
    right = subject_of("full")
    text = print_module(right.module)
    first = "        m_prev = m\n"
    assert text.count(first) == 1 and text.count(AFTER) == 1
    text = text.replace(first, f"        if step > 70000:\n            sync()\n{first}")
    text = text.replace(AFTER, f"    for step in range(1):\n        sync()\n{AFTER}")
    wrong = Subject(parse_module(text), right.recipe, right.binding, right.spec, {})
    assert Reaches(wrong).of(only(wrong, right, "`step > 70000`"), True).possible


@pytest.mark.parametrize(
    ("lines", "possible"),
    [
        ("    if args.Nk > 70000:\n        far = 1\n    else:\n        far = 0\n", True),
        ("    far = 0\n    for late in range(args.Nk):\n        far = far + 1\n", True),
        ("    far = 0\n", False),
    ],
)
def test_a_name_stands_for_what_leads_to_it_alone(lines: str, possible: bool) -> None:
    right = subject_of("full")
    wrong = edited(right, AFTER, f"{lines}    if far > 0:\n        sync()\n{AFTER}")
    assert Reaches(wrong).of(only(wrong, right, "`far > 0`"), True).possible == possible


def test_a_failed_launch_that_is_handed_on_need_not_be_seen() -> None:
    package = load_package("flash_fwd_sm80")
    base = lift(package, "bf16_64", package.archs[0]).module
    right = subject_of("causal_document")
    failed = [c for c in new_conditions(base, right.module) if "!= success" in c.words(True)]
    assert len(failed) == 3 and all(c.sides == (False,) for c in failed)


@pytest.mark.parametrize(
    "other",
    ["return success", "return classed", "args.planned == 0"],
)
def test_whatever_else_it_does_is_a_branch(other: str) -> None:
    right = subject_of("causal_document")
    if other.startswith("return"):
        old, new = "return listed", other
    else:
        old, new = "listed = run(list_tiles", "listed = success if args.B > 9 else run(list_tiles"
    wrong = edited(right, old, new)
    one = next(c for c in conditions(wrong.module) if c.words(True).startswith("`listed != succ"))
    assert one.sides == (True, False)


def test_a_cards_processors_are_those_of_a_run_first() -> None:
    """More work than they hold at once is a case of a few heads."""
    right = subject_of("sliding_window_causal", "flash_fwd_sm90", "bf16_128")
    (one,) = (c for c in conditions(right.module) if c.words(True).startswith("`min(works, sm_c"))
    reaches = Reaches(right)
    for side in one.sides:
        case = reaches.of(one, side).cases[0]
        works = -(-case.Nq // 192) * case.Hq * case.B
        assert (min(works, 4) < -(-works // 2)) == side


def test_a_point_that_no_run_comes_to_says_nothing() -> None:
    """Where a block has no piece of work, one's head is divided by no heads; its first row, then,
    was taken for any."""
    right = subject_of("causal_blockwise", "flash_fwd_sm90", "bf16_128")
    reaches = Reaches(right)
    found = [c for c in conditions(right.module) if "(q0 + args.Nk" in c.words(False)
             and c.words(False).endswith("< 0` (tile_lead)")]  # fmt: skip
    assert found and not any(reaches.of(one, False).possible for one in found)
    assert all(reaches.of(one, True).possible for one in found)


@pytest.mark.parametrize(("test", "possible"), [("late < 70001", True), ("args.Nk < 70001", False)])
def test_what_stands_in_a_loop_is_asked_where_it_runs(test: str, possible: bool) -> None:
    right = subject_of("full")
    loop = f"    for late in range(70000, args.Nk):\n        if {test}:\n            sync()\n"
    wrong = edited(right, AFTER, f"{loop}{AFTER}")
    (one,) = (c for c in new_conditions(right.module, wrong.module) if "< 70001" in c.words(True))
    assert Reaches(wrong).of(one, True).possible == possible


def test_conditions_may_be_compared() -> None:
    right = subject_of("full")
    test = "(args.Nq > 70000) == (args.Nk > 80000)"
    wrong = edited(right, AFTER, f"    if {test}:\n        sync()\n{AFTER}")
    (one,) = (c for c in new_conditions(right.module, wrong.module) if " == " in c.words(True))
    reaches = Reaches(wrong)
    assert all(reaches.of(one, side).possible for side in (True, False))


CHANGED = {
    "a parameter, before a call": "    more = 0\n    if step > 0:\n        more = step\n"
    "        step = 0\n        more = inner(args, more, q0)\n    return step + more\n",
    "a parameter, before a condition": "    if step > 0:\n        step = 0\n        if q0 > 900:\n"
    "            step = 1\n    return step\n",
    "a loop's variable": "    for t in range(step):\n        if q0 > 900:\n            t = 0\n"
    "        if t > 20:\n            if q0 > 900:\n                step = 0\n    return step\n",
}
INNER = """@device
def inner(args, n: i32, q0: i32):
    if q0 > 900:
        return n - 1
    return n


"""


@pytest.mark.parametrize("how", CHANGED)
def test_of_a_name_that_changes_nothing_is_said(how: str) -> None:
    """What is asked below a condition on it was taken for asked never, and passed unseen."""
    right = subject_of("full")
    head = "def tile_index(args, b: i32, h: i32, q0: i32, step: i32, *, BM, BN):\n"
    text = print_module(right.module).replace(f"{head}    return step\n", head + CHANGED[how])
    text = text.replace("@device\ndef tile_index", f"{INNER}@device\ndef tile_index")
    wrong = Subject(parse_module(text), right.recipe, right.binding, right.spec, {})
    reaches = Reaches(wrong)
    found = [c for c in new_conditions(right.module, wrong.module) if "900" in c.words(True)]
    assert found and all(reaches.of(one, side).possible for one in found for side in (True, False))


def test_a_name_of_a_lambda_is_none_of_the_function_around_it() -> None:
    right = subject_of("alibi_causal")
    text = print_module(right.module)
    place = text.index("= map(", text.index("def flash_fwd"))
    line = text[text.rindex("\n", 0, place) + 1 : text.index("\n", place)]
    indent = line[: len(line) - len(line.lstrip())]
    inner = INNER.replace("q0 > 900", "n > 5000").replace("(args, n: i32, q0", "(n: i32, q0")
    added = f"{indent}i = 0\n{indent}far = map(s, lambda x, i: x + f32(inner(i, 0)), at=[q0])\n"
    text = text.replace(line, added + line, 1)
    text = text.replace("@device\ndef tile_index", f"{inner}@device\ndef tile_index")
    module = parse_module(text)
    (one,) = (c for c in conditions(module) if c.words(True).startswith("`n > 5000`"))
    wrong = Subject(module, right.recipe, right.binding, right.spec, {})
    assert Reaches(wrong).of(one, True).possible


TWO_LOOPS = """\
    for late in range(2):
        far = late + 1
        if far > 1:
            l = map(l, lambda a: a * 1.0)
        if far > 3:
            l = map(l, lambda a: a * 1.0)
    for late in range(3, 4):
        far = late + 2
        if far > 4:
            l = map(l, lambda a: a * 1.0)
"""


def test_a_name_that_two_loops_give_is_what_the_loop_around_gives_it() -> None:
    right = subject_of("full")
    subject = edited(right, AFTER, TWO_LOOPS + AFTER)
    reaches = Reaches(subject)
    sides = {
        words: {s: reaches.of(only(subject, right, words), s).possible for s in (True, False)}
        for words in ("`far > 1`", "`far > 3`", "`far > 4`")
    }
    assert sides == {
        "`far > 1`": {True: True, False: True},
        "`far > 3`": {True: False, False: True},
        "`far > 4`": {True: True, False: False},
    }


@pytest.mark.parametrize(
    "changed",
    [
        "        far = late + 1\n        if args.Nk > 3:\n            far = far + 9\n",
        "        n = late\n        far = n + 1\n        n = 12\n        far = far + n\n",
        "        far = late + 1\n        for more in range(2):\n            far = far + 9\n",
    ],
)
def test_what_is_changed_in_between_is_not_what_was_given_first(changed: str) -> None:
    right = subject_of("full")
    text = f"    for late in range(2):\n{changed}        if far > 3:\n"
    text += "            l = map(l, lambda a: a * 1.0)\n"
    subject = edited(right, AFTER, text + AFTER)
    assert Reaches(subject).of(only(subject, right, "`far > 3`"), True).possible


SIGNED = "    far = 0\n    if args.Nk > 3:\n        far = -1\n"
FALLING = "    far = 0\n    for late in range(0, 3):\n        far = far - 1\n"
COUNTED = "    for late in range(0, args.Nk):\n        more = late * 2\n        sync()\n"
BEHIND = {
    "a loop that counts down": ("", "for late in range(1, 0, -1)"),
    "a step that a run knows": ("", "for late in range(1, 0, args.Nq - args.Nq - 1)"),
    "a step of a name": ("    far = -1\n", "for late in range(1, 0, far)"),
    "a step that is one of two": (SIGNED, "for late in range(1, 0, far)"),
    "what counts down": ("", "for late in range(args.Nk, 0, -1)", "if late < 3"),
    "a bound that was counted down": (FALLING, "for late in range(far, 0)"),
    "a name that was counted down": (FALLING, "if far < 0"),
    "a name that is one of two": (SIGNED, "if far < 0"),
    "what hangs on such a name": (f"{SIGNED}    more = far - 1\n", "if more + 1 < 0"),
    "what counts from such a name": (SIGNED, "for late in range(far, 0)", "if late < 0"),
    "a loop in one of its name": (
        "", "for late in range(args.Nk)", "if late > 2", "for late in range(2)",
    ),
    "what a loop of its name counted": (COUNTED, "for late in range(2)", "if more > 8"),
    "a loop of a constant's name": ("", "if BM > 2", "for BM in range(2)"),
}  # fmt: skip


def behind(how: str, test: str) -> Subject:
    """The plain kernel with a condition that a run comes to after others."""
    before, *heads = BEHIND[how]
    nest = [f"{'    ' * depth}{head}:\n" for depth, head in enumerate((*heads, f"if {test}"), 1)]
    end = f"{'    ' * (len(nest) + 1)}sync()\n"
    return edited(subject_of("full"), AFTER, "".join((before, *nest, end, AFTER)))


@pytest.mark.parametrize("how", BEHIND)
def test_what_a_run_comes_to_has_its_branches(how: str) -> None:
    """Each was taken for what no run comes to, and both sides of the condition went unseen."""
    wrong = behind(how, "args.Nk > 70000")
    one = only(wrong, subject_of("full"), "`args.Nk > 70000`")
    reaches = Reaches(wrong)
    assert all(reaches.of(one, side).possible for side in (True, False))


@pytest.mark.parametrize("how", [h for h in BEHIND if BEHIND[h][-1].startswith("if ")])
def test_a_test_that_a_run_meets_both_ways_is_asked_for_both(how: str) -> None:
    wrong = behind(how, "args.Nk > 70000")
    test = BEHIND[how][-1].removeprefix("if ")
    one = only(wrong, subject_of("full"), f"`{test}`")
    assert Reaches(wrong).of(one, True).possible


@pytest.mark.parametrize(
    "loop", ["range(1, 0)", "range(1, 0, args.Nk)", "range(0, 1, -1)", "range(1, 0, then(far))"]
)
def test_in_a_loop_that_never_runs_nothing_is_asked(loop: str) -> None:
    lines = f"    for late in {loop}:\n        far = late + 1\n        if args.Nk > 70000:\n"
    wrong = edited(subject_of("full"), AFTER, f"{lines}            sync()\n{AFTER}")
    one = only(wrong, subject_of("full"), "`args.Nk > 70000`")
    assert not Reaches(wrong).of(one, True).possible


def test_a_loop_that_counts_down_runs_where_its_start_is_above_its_stop() -> None:
    lines = "    for late in range(max(args.Nk - 70000, 0), 0, -1):\n        sync()\n"
    wrong = edited(subject_of("full"), AFTER, lines + AFTER)
    (one,) = (c for c in new_conditions(subject_of("full").module, wrong.module) if c.loop)
    assert one.words(True).startswith("`max(args.Nk - 70000, 0) > 0`")
    reach = Reaches(wrong).of(one, True)
    assert reach.possible and all(case.Nk > 70000 for case in reach.cases)


@pytest.mark.parametrize("before", ["    i = 0\n", "    for i in range(2):\n        sync()\n"])
def test_a_coordinate_of_a_scalars_name_is_a_coordinate(before: str) -> None:
    lines = "    l = map(l, lambda sum, i: sum * 2.0 if i > 3290 else sum, at=[q0, 0])\n"
    wrong = edited(subject_of("full"), AFTER, before + lines + AFTER)
    assert Reaches(wrong).of(only(wrong, subject_of("full"), "`i > 3290`"), True).possible


@pytest.mark.parametrize("given", ["far", "i32(LSE[b, h, q0])"])
def test_a_parameter_that_is_given_what_only_a_run_knows_may_be_below_0(given: str) -> None:
    text = print_module(subject_of("full").module)
    inner = INNER.replace("q0 > 900", "n < 0").replace("(args, n: i32, q0: i32)", "(n: i32)")
    text = text.replace("@device\ndef tile_index", f"{inner}@device\ndef tile_index")
    lines = f"{SIGNED}    more = inner({given})\n"
    module = parse_module(text.replace(AFTER, lines + AFTER))
    right = subject_of("full")
    wrong = Subject(module, right.recipe, right.binding, right.spec, {})
    one = next(c for c in conditions(module) if c.words(True).startswith("`n < 0` (inner)"))
    assert Reaches(wrong).of(one, True).possible


@pytest.mark.parametrize(
    "lines",
    [
        "    far = args.Nk\n    if far > 5:\n        far = 0\n        if {test}:\n",
        "    far = 5\n    for late in range(0, far):\n        far = 0\n        if {test}:\n",
        "    far = 0\n    for late in range(args.Nk):\n        if late == 1:\n"
        "            far = args.Nk\n        else:\n            if far > 70000:\n"
        "                if {test}:\n",
        "    far = args.Nk\n    more = far + 1\n    far = 0\n    if more > 70000:\n"
        "        if {test}:\n",
        "    far = 0\n    more = far + 1\n    far = args.Nk\n    if far > 70000:\n"
        "        if {test}:\n",
    ],
)
def test_what_holds_is_asked_where_it_stands(lines: str) -> None:
    """The name is another number there than at the statement."""
    lines = lines.format(test="args.Nk > 80000")
    last = lines.rstrip().split("\n")[-1]
    lines = f"{lines}{' ' * (len(last) - len(last.lstrip()) + 4)}sync()\n"
    wrong = edited(subject_of("full"), AFTER, lines + AFTER)
    one = only(wrong, subject_of("full"), "`args.Nk > 80000`")
    assert Reaches(wrong).of(one, True).possible


def sides_of(test: str) -> dict[bool, Reach]:
    """What the reachability of each side of a test before the sums' reduction is."""
    right = subject_of("full")
    wrong = edited(right, AFTER, f"    if {test}:\n        sync()\n{AFTER}")
    one = max(new_conditions(right.module, wrong.module), key=lambda c: len(c.words(True)))
    reaches = Reaches(wrong)
    return {side: reaches.of(one, side) for side in (True, False)}


@pytest.mark.parametrize(
    ("test", "sizes"),
    [
        ("args.Nq == 70001 and args.Nk == 90007", (70001, 90007)),  # in no table of sizes
        ("args.Nk * args.Nq == 1001 and args.Nq > 7", (13, 77)),
        ("args.Nk > 300 and args.Nq > 200", (201, 301)),
        ("args.Nk % 77 == 76 and q0 > 0 and args.Nq < args.Nk", (129, 153)),
    ],
)
def test_the_solver_finds_the_smallest_sizes(test: str, sizes: tuple[int, int]) -> None:
    reach = sides_of(test)[True]
    assert reach.possible
    assert (reach.cases[0].Nq, reach.cases[0].Nk) == sizes


@pytest.mark.parametrize(
    "test",
    [
        "args.Nk < 0",
        "args.Nk * args.Nk + 1 == 2 * args.Nk and args.Nk > 1",
        "args.Nq > 9 and args.Nk > 2 * args.Nq and args.Nk < 19",
        "q0 >= args.Nq and b < args.B",
    ],
)
def test_that_no_size_brings_it_about_is_proven(test: str) -> None:
    reach = sides_of(test)[True]
    assert not reach.possible and not reach.sampled


def test_what_only_a_table_says_is_said_to_be_sampled() -> None:
    reach = sides_of("f32(args.Nk) < 0.0")[True]
    assert not reach.possible and reach.sampled
