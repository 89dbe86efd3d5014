"""G2 and targets that make tile lists: what a workspace held, and what inputs are seldom like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.judge import judge
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.deck_cases import read_cases
from engine.gates.runs.subject import Failure, Subject
from tests.engine.gates.g1_g2.test_judge import subject_of

STEPS = "range(block_id(1), tiles, grid_dim(1))"


def with_classes(subject: Subject, *changes: tuple[str, str]) -> Failure | None:
    """The verdict where the text of `class_tiles` is changed."""
    text = print_module(subject.module)
    begin, end = text.index("def class_tiles"), text.index("def list_tiles")
    part = text[begin:end]
    for old, new in changes:
        assert old in part, old
        part = part.replace(old, new)
    module = parse_module(text[:begin] + part + text[end:])
    broken = Subject(module, subject.recipe, subject.binding, subject.spec, subject.options)
    return judge(broken, lambda _: None)[0]


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
