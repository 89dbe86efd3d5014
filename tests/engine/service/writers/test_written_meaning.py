"""A meaning by hand: one text, the three proposals of a model's steps, one stroke."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.cuir.printer import print_module
from engine.errors import InputError
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.meanings import standing
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.service.writers.person import write_meaning, written_text
from engine.types import Origin, Stage
from sessions.store import Store
from tests.engine.transfer.llm.shop import make_shop

HAND = "does: adds the row sums\n  of s.\nreads: l, s\nwrites: l\nby: part\n\nl = row_sum(s, l)\n"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adaptation]:
    package = find_kernel(str(make_shop(tmp_path_factory.mktemp("kernels") / "shop")))
    with Bench(Store.open(tmp_path_factory.mktemp("hand") / "store.git")) as bench:
        session = start(bench, package, find_spec("causal"), choose_options(package), "me")
        with bench.store.writer(session) as writer:
            made = Adaptation(bench, writer, "me")
            made.lift()
            yield made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HAND.replace("by: part", "by: everyone"), "`by` takes one or more of"),
        (HAND.replace("l = row", "m = row"), "did not say that it writes"),
        (HAND.replace("by: part\n", ""), "needs the lines `by:`"),
        (HAND.replace("reads: l, s", "reads: l, zz"), "does not stand in the op's text"),
        (HAND.replace("l = row_sum(s, l)", "l = row_sum("), "does not parse"),
        (HAND.replace("l = row_sum(s, l)", ""), "no statements"),
        (HAND.replace("l = row_sum(s, l)", "l = row_sum(zz, l)"), "the checks of the module find"),
        ("unknown: I cannot tell", "needs the lines|says something"),
        ("", "needs the lines"),
    ],
)
def test_what_cannot_be_a_meaning_leaves_no_trace(
    work: Adaptation, text: str, message: str
) -> None:
    before = len(work.writer.events)
    with pytest.raises(InputError, match=message):
        write_meaning(work, "s56", text)
    assert len(work.writer.events) == before


def test_it_stands_and_is_taken_back_at_one_stroke(work: Adaptation) -> None:
    bare = work.text(Stage.LIFTED, "lifted.cuir")
    begin = written_text(work, "s56")
    assert begin.startswith("does: \nreads: ") and "by: part" in begin
    write_meaning(work, "s56", HAND)
    said = standing(work)["s56"]
    assert (said.does, said.by) == ("adds the row sums of s.", ("part",))
    assert "l = row_sum(s, l)" in print_module(work.lifted.module)
    assert {p.origin for p in work.state.proposals} == {Origin.PERSON}
    # What stands is what one begins from to change it.
    assert written_text(work, "s56").replace("does: adds the row sums of s.", "") == HAND.replace(
        "does: adds the row sums\n  of s.", ""
    )
    write_meaning(work, "s56", HAND.replace("l = row_sum(s, l)", "pass"))
    assert "no_effect = True" in print_module(work.lifted.module)
    assert work.undo()
    assert "l = row_sum(s, l)" in print_module(work.lifted.module)
    assert work.undo() and not work.undo()
    assert work.text(Stage.LIFTED, "lifted.cuir") == bare and not standing(work)
