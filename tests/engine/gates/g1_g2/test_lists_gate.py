"""G2 and targets that make tile lists: what a workspace held, and what inputs are seldom like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.deck import in_turn
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.judge import judge
from engine.gates.runs import case_run
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.deck_cases import DRAWS, read_cases
from engine.gates.runs.subject import Failure, Subject
from engine.gates.schedules.schedule_goals import proofs_of
from engine.transfer.binding import SLOTS
from tests.engine.gates.g1_g2.test_judge import subject_of
from tests.engine.gates.test_deck import subject_of as spec_subject

STEPS = "range(block_id(1), tiles, grid_dim(1))"


VALID = """\
def attention_mods(ok: Bool[Tensor, "B Nk"]):
    def mask(b, h, q_idx, kv_idx):
        return ok[b, kv_idx] & (q_idx >= kv_idx)
    return mask
"""


def changed(subject: Subject, *changes: tuple[str, str]) -> Subject:
    """The subject with another text of `class_tiles`."""
    text = print_module(subject.module)
    begin, end = text.index("def class_tiles"), text.index("def list_tiles")
    part = text[begin:end]
    for old, new in changes:
        assert old in part, old
        part = part.replace(old, new)
    module = parse_module(text[:begin] + part + text[end:])
    return replace(subject, module=module)


def with_classes(subject: Subject, *changes: tuple[str, str]) -> Failure | None:
    """The verdict where the text of `class_tiles` is changed."""
    return judge(changed(subject, *changes), lambda _: None)[0]


@pytest.mark.parametrize(
    "steps",
    [
        "range(2 * block_id(1) + 1, tiles, 2 * grid_dim(1))",
        "range(tiles, tiles, grid_dim(1))",
        "range(block_id(1), min(tiles, block_id(1) + 1), grid_dim(1))",
    ],
    ids=["every second tile", "no tile", "one tile a block"],
)
def test_a_class_that_nothing_wrote_may_not_be_read(steps: str) -> None:
    failure = with_classes(subject_of("causal_document"), (STEPS, steps))
    assert failure is not None and failure.reason.startswith("unwritten_read")
    assert failure.op is not None and failure.op.startswith("list_tiles/")


def test_a_tile_of_which_all_is_kept_is_not_listed_for_bits() -> None:
    """Listed twice as another tile: two blocks write that one's class, in no order."""
    right = subject_of("document", "flash_fwd_sm90")
    text = print_module(right.module)
    at = text.index("lambda step: -1 if", text.index("partial = compact("))
    module = parse_module(text[:at] + text[at:].replace("-1", "1", 1))
    cases = [c for c in read_cases(right) if c.Nq == 3 and c.Nk > 3]
    broken = replace(right, module=module)
    assert len(cases) == 2 and run_deck(BY_RECIPE, right, cases, lambda _: None)[0] is None
    failure, _ = run_deck(BY_RECIPE, broken, cases, lambda _: None)
    assert failure is not None and failure.reason.startswith("global_race")


def test_ends_are_no_extremes_where_ids_are_unsorted() -> None:
    low, high = "least[BM](lambda i: doc_q[b, min(i, last)], at=[q0])", "doc_q[b, q0]"
    failure = with_classes(
        subject_of("causal_document"),
        (low, high),
        (low.replace("least", "greatest"), "doc_q[b, last]"),
        ("least[BN](lambda j: doc_k[b, min(j, last_key)], at=[first_key])", "doc_k[b, first_key]"),
        ("greatest[BN](lambda j: doc_k[b, min(j, last_key)], at=[first_key])",
         "doc_k[b, last_key]"),
    )  # fmt: skip
    assert failure is not None and "O is wrong" in failure.reason


LEAST, GREATEST = (f"{name}[{{}}](lambda {{}}: {{}}, at=[{{}}])" for name in ("least", "greatest"))
ROWS = ("BM", "i", "doc[min(i, last) + args.Nk - args.Nq]", "q0")
KEYS = ("BN", "j", "doc[min(j, last_key)]", "first_key")
ENDS = {  # what a range leaves out at one end of it, and the case that shows it
    "first key, least": (LEAST, KEYS, 0, 0), "last key, greatest": (GREATEST, KEYS, 1, 0),
    "first row, least": (LEAST, ROWS, 0, 1), "first row, greatest": (GREATEST, ROWS, 0, 2),
    "last row, least": (LEAST, ROWS, 1, 5), "last row, greatest": (GREATEST, ROWS, 1, 6),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_a_range_that_leaves_out_one_end_is_seen(end: str) -> None:
    """No other draw has its least or greatest there alone, and no proof of the classes is left."""
    form, (tile, at, read, first), last, shown = ENDS[end]
    old = form.format(tile, at, read, first)
    more = f"{first} + 1"
    ended = read.replace("last_key", "last_key - 1").replace("last)", "last - 1)")
    new = form.format(tile, at, *((ended, first) if last else (read, more)))
    right = subject_of("flex_causal_document")
    wrong = changed(right, (old, new))
    assert not proofs_of(right).more
    cases = proofs_of(wrong).more
    assert run_deck(BY_RECIPE, right, cases[shown : shown + 1], lambda _: None)[0] is None
    failure, _ = run_deck(BY_RECIPE, wrong, cases[shown : shown + 1], lambda _: None)
    assert failure is not None and "O is wrong" in failure.reason


def test_flags_and_masks_that_begin_with_the_keys_have_such_draws(tmp_path: Path) -> None:
    right = spec_subject(tmp_path, VALID)
    low = "least[BN](lambda j: i32(ok[b, min(j, last_key)]), at=[first_key])"
    wrong = changed(right, (low, low.replace("first_key]", "first_key + 1]")))
    cases = proofs_of(wrong).more[:1]
    failure, _ = run_deck(BY_RECIPE, wrong, cases, lambda _: None)
    assert failure is not None and "O is wrong" in failure.reason


def test_a_case_says_itself_which_bits_it_has() -> None:
    """By its number it lost them wherever a case before it came or went."""
    right = subject_of("causal_document")
    cases = read_cases(right)
    for turn in range(DRAWS):
        drawn = {c.slots for c in cases if c.turn == turn and c.values == "random"}
        assert drawn == {1, SLOTS}
    asked: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        fill = case_run.fill_arguments

        def filled(*given: Any) -> Any:
            asked.append(given[-1])
            return fill(*given)

        patch.setattr(case_run, "fill_arguments", filled)
        for number in (0, 1):
            for case in (in_turn(3, 70), in_turn(3, 70, slots=1)):
                run_deck(BY_RECIPE, right, [case] * (number + 1), lambda _: None, number)
    assert asked == [SLOTS, 1] * 2
