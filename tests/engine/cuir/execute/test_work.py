"""Work that blocks claim while they run, handed on in a shared word; each broken copy at its op."""

import pytest
import torch
from helpers import faults, path_of

from engine.cuir.execute import Limits, Schedule, run_program
from engine.cuir.nodes import walk
from engine.cuir.parser import parse_module
from engine.cuir.printer import first_line, print_module
from tests.engine.cuir.execute.explore import explore

TEXT = """\
specialisation(arch='sm_90a', T=bf16)


class Args:
    y: tensor
    queue: tensor
    N: i32


@kernel(threads=384)
def work(args, *, T):
    Y = gmem[i32](args.y, args.N)
    queue = gmem[i32](args.queue, 1)
    full = mbarriers[2](0)
    empty = mbarriers[2](16)
    words = shared_words[2](32)
    wg = warpgroup_id()
    if wg == 0:
        if elect():
            for slot in range(2):
                mbarrier_init(full[slot], 1)
                mbarrier_init(empty[slot], 256)
            fence_barrier_init()
    sync()
    if wg == 0:
        if elect():
            turn = 0
            next = 0
            for piece in range(block_id(0), args.N, then(next)):
                ticket = claim(queue[0:], args.N)
                next = grid_dim(0) + ticket
                wait(empty[turn % 2], 1 - turn // 2 % 2)
                post(words[turn % 2], next)
                arrive(full[turn % 2])
                turn = turn + 1
    else:
        turn = 0
        next = 0
        for piece in range(block_id(0), args.N, then(next)):
            if wg == 1:
                put(Y[piece:], piece + 1)
            wait(full[turn % 2], turn // 2 % 2)
            next = fetch(words[turn % 2])
            arrive(empty[turn % 2])
            turn = turn + 1


@host
def launch(args, stream, *, T):
    return run(work[T], [args], grid=[min(args.N, sm_count())], threads=384, shared=1024 + 64)
"""
SCHEDULES = [Schedule(n) for n in range(4)] + [Schedule(starve=n) for n in range(6)]
THREE = Limits(sm_count=3)


def outcome(text=TEXT, schedule=None, works=11, queue=0, limits=THREE, **more):
    inputs = {
        "y": torch.zeros(works, dtype=torch.int32),
        "queue": torch.full((1,), queue, dtype=torch.int32),
        "N": works,
    }
    return run_program(parse_module(text), inputs, "exact", schedule, limits, **more)


def edited(*changes):
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def test_the_text_is_canonical_and_passes_the_checks():
    module = parse_module(TEXT)
    assert print_module(module) == TEXT
    assert faults(module) == ()


@pytest.mark.parametrize("works", [1, 2, 3, 4, 5, 11])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_each_piece_is_done_once_and_the_word_is_left_as_it_was(schedule, works):
    done = outcome(schedule=schedule, works=works)
    assert done.clean
    assert done.outputs["y"].tolist() == [n + 1 for n in range(works)]
    assert done.outputs["queue"].tolist() == [0]


def shares(schedule):
    """How many pieces each block does."""
    mine = edited(("put(Y[piece:], piece + 1)", "put(Y[piece:], block_id(0))"))
    return outcome(mine, schedule).outputs["y"].bincount(minlength=3).tolist()


def test_schedules_hand_the_pieces_out_in_several_ways():
    assert shares(Schedule()) == [4, 4, 3]  # in turn
    assert shares(Schedule(starve=0)) == [9, 1, 1]  # the first block claims all
    assert len({tuple(shares(Schedule(seed))) for seed in range(1, 9)}) > 3


def test_exploration_finds_nothing_wrong():
    inputs = {"y": torch.zeros(5, dtype=torch.int32), "queue": torch.zeros(1, dtype=torch.int32)}
    found = explore(parse_module(TEXT), inputs | {"N": 5}, budget=60, limits=THREE)
    assert found.findings == () and found.runs == 60


WAIT_FULL = "            wait(full[turn % 2], turn // 2 % 2)\n"
WAIT_EMPTY = "                wait(empty[turn % 2], 1 - turn // 2 % 2)\n"
POST = "post(words[turn % 2], next)"
FETCH = "next = fetch(words[turn % 2])"
CLAIM = "ticket = claim(queue[0:], args.N)"
LOOP = "for piece in range(block_id(0), args.N, then(next)):"
FREE = "            arrive(empty[turn % 2])\n"
ONE_FREES = [
    ("empty[slot], 256", "empty[slot], 2"),
    (FREE, f"            if elect():\n    {FREE}"),
]

# name: (changes, kind, the statement it is reported at)
BROKEN = {
    "fetched without a wait": ([(WAIT_FULL, "")], "early_read", FETCH),
    "fetched in the wrong phase": (
        [(WAIT_FULL, WAIT_FULL.replace("turn // 2 % 2", "1 - turn // 2 % 2"))],
        "early_read", FETCH),
    "posted without a wait": ([(WAIT_EMPTY, "")], "overwritten_stage", POST),
    "one of 128 threads frees the slot": (ONE_FREES, "overwritten_stage", POST),
    "never posted": ([(f"                {POST}\n", "")], "early_read", FETCH),
    "fetched by the loading thread, which never posted it": (
        [(f"                {POST}\n", f"                other = {FETCH[7:]}\n")],
        "early_read", f"other = {FETCH[7:]}"),
    "never announced": (
        [("                arrive(full[turn % 2])\n", "")], "lost_arrival", WAIT_FULL.strip()),
    "never freed": ([(FREE, "")], "lost_arrival", WAIT_EMPTY.strip()),
    "posted after it was announced": (
        [(f"                {POST}\n                arrive(full[turn % 2])\n",
          f"                arrive(full[turn % 2])\n                {POST}\n")],
        "early_read", FETCH),
    "every thread claims": (
        [("    if wg == 0:\n        if elect():\n            turn = 0",
          "    if wg == 0:\n        if wg == 0:\n            turn = 0")],
        "not_elected", CLAIM),
    "a limit that is too high": (
        [(CLAIM, CLAIM.replace("args.N", "args.N + 1"))],
        "unreturned_claim", CLAIM.replace("args.N", "args.N + 1")),
    "a limit that is too low": (
        [(CLAIM, CLAIM.replace("args.N", "args.N - 4"))], "bad_value", LOOP),
    "a next piece that is not further on": (
        [("next = grid_dim(0) + ticket", "next = ticket")], "bad_value", LOOP),
    "a next piece that is left as it was": (
        [(f"            {FETCH}\n", f"            other = {FETCH[7:]}\n")], "bad_value", LOOP),
    "claimed and written": (
        [(CLAIM, f"{CLAIM}\n                put(queue[0:], 0)")], "global_race",
        "put(queue[0:], 0)"),
    "claimed and read": (
        [("put(Y[piece:], piece + 1)", "put(Y[piece:], piece + 1 + 0 * queue[0])")],
        "global_race", "put(Y[piece:], piece + 1 + 0 * queue[0])"),
    "claimed outside": ([(CLAIM, CLAIM.replace("0:", "1:"))], "out_of_bounds",
                        CLAIM.replace("0:", "1:")),
    "a word inside a barrier": (
        [("shared_words[2](32)", "shared_words[2](16)")], "write_race", POST),
    "words past the launch's bytes": (
        [("shared=1024 + 64", "shared=1024 + 48")], "out_of_bounds", "words = shared_words[2](32)"),
    "a word that is not there": (
        [(POST, "post(words[turn % 3], next)")], "out_of_bounds", "post(words[turn % 3], next)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_is_reported_at_its_op(name):
    changes, kind, where = BROKEN[name]
    text = edited(*changes)
    module = parse_module(text)
    found = {
        (finding.kind, finding.path)
        for schedule in SCHEDULES
        for finding in outcome(text, schedule).findings
    }
    places = {path for k, path in found if k == kind}
    assert places & set(path_of(module, where)), found


def test_a_word_that_nothing_has_set_is_found():
    done = outcome(unfilled=["queue"])
    assert {f.kind for f in done.findings} == {"unwritten_read"}
    assert [done.findings[0].path] == path_of(parse_module(TEXT), CLAIM)


@pytest.mark.parametrize("left", [3, -5, 100])
def test_a_word_that_begins_elsewhere_shows_in_the_pieces(left):
    done = outcome(queue=left)
    assert not done.clean or done.outputs["y"].tolist() != [n + 1 for n in range(11)]


STATIC = {
    "a loop that never sets its next": ([(f"            {FETCH}\n", "")], "bad_value", LOOP),
    "a next that nothing defines": ([("then(next)", "then(after)")], "unknown_name",
                                    LOOP.replace("next", "after")),
    "a next that is no name": ([("then(next)", "then(next + 1)")], "unknown_op",
                               LOOP.replace("next", "next + 1")),
    "words off their bytes": (
        [("shared_words[2](32)", "shared_words[2](40)")], "misaligned",
        "words = shared_words[2](40)"),
    "words past the launch's bytes": (
        [("shared=1024 + 64", "shared=1024 + 48")], "out_of_bounds", "words = shared_words[2](32)"),
    "words past the arch's bytes": (
        [("shared_words[2](32)", "shared_words[2](232432)")], "shared_over_limit",
        "words = shared_words[2](232432)"),
    "a limit of nothing": ([(CLAIM, CLAIM.replace("args.N", "0"))], "bad_value",
                           CLAIM.replace("args.N", "0")),
    "a claim from floats": ([("gmem[i32](args.queue", "gmem[f32](args.queue")], "type_mismatch",
                            CLAIM),
    "a post to a barrier": ([(POST, "post(full[0], next)")], "type_mismatch",
                            "post(full[0], next)"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATIC)
def test_the_checks_say_so_before_a_run(name):
    changes, kind, where = STATIC[name]
    module = parse_module(edited(*changes))
    found = {f.path for f in faults(module) if f.kind == kind}
    assert found & set(path_of(module, where)), faults(module)


BIG = 1 << 31


@pytest.mark.parametrize(
    ("old", "new", "does"),
    [
        ("put(Y[piece:], piece + 1)", f"put(Y[piece:], piece + {BIG})", "put stores"),
        ("put(Y[piece:], piece + 1)", f"put(Y[piece:], piece - {BIG + 1})", "put stores"),
        ("put(Y[piece:], piece + 1)", f"n = compact(Y[piece:], 1, lambda j: j + {BIG}, at=[0])",
         "compact stores"),
        (POST, f"post(words[turn % 2], next + {BIG})", "post stores"),
        ("claim(queue[0:], args.N)", f"claim(queue[0:], args.N + {BIG})", "claim counts to"),
    ],
)  # fmt: skip
def test_a_number_that_no_word_holds_is_stored_by_nothing(old, new, does):
    done = outcome(edited((old, new)))
    assert [f.kind for f in done.findings] == ["bad_value"], done.findings
    assert does in done.findings[0].message and "no i32 holds" in done.findings[0].message


def test_the_largest_numbers_of_a_word_are_stored():
    for value in (BIG - 1, -BIG):
        done = outcome(edited(("put(Y[piece:], piece + 1)", f"put(Y[piece:], {value})")))
        assert done.clean and set(done.outputs["y"].tolist()) == {value}


@pytest.mark.parametrize("threads", [0, -128, 3_840_000_000])
def test_a_number_of_threads_that_no_block_has_is_judged_before_it_is_followed(threads):
    found = faults(parse_module(TEXT.replace("threads=384", f"threads={threads}")))
    assert "launch_mismatch" in {f.kind for f in found}


DEVICE = """\
@device
def told(Y, *, T):
    put(Y[0:], 1)
    return 1


@host
"""


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("next = fetch(words[turn % 2])", "next = 0 + fetch(words[turn % 2])", "next = 0 + f"),
        ("put(Y[piece:], piece + 1)", "put(Y[0:], fetch(words[0]))", "put(Y[0:], f"),
        ("if wg == 1:", "if fetch(words[0]) == 1:", "if fetch"),
        ("then(next)):\n            if wg", "then(next)):\n            if fetch(words[0]) > 0",
         "if fetch"),
        ("range(block_id(0), args.N, then(next)):\n            if wg",
         "range(fetch(words[0]), args.N, then(next)):\n            if wg", "for piece in range(fe"),
        ("put(Y[piece:], piece + 1)", "put(Y[piece:], least[32](lambda j: j, at=[0]))", "put(Y"),
        ("put(Y[piece:], piece + 1)", "n = 1 + told[T](Y)", "n = 1"),
    ],
)  # fmt: skip
def test_an_op_inside_an_expression_is_found_before_a_run_too(old, new, where):
    text = edited((old, new)).replace("@host\n", DEVICE)
    module = parse_module(text)
    (finding,) = (f for f in faults(module) if "statement of its own" in f.message)
    ran = outcome(text)
    (stopped,) = ran.findings
    assert (finding.kind, finding.message) == (stopped.kind, stopped.message)
    place = next(path for path, stmt in walk(module) if first_line(stmt).startswith(where))
    assert finding.path == stopped.path == place
