"""What a person writes on top of the rules is asked for both sides of every branch, in G2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.cuir.printer import print_module
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.service.writers.person import propose_by_person
from engine.types import Decision, DecisionKind, VerdictKind
from sessions.store import Store

SUM = "    l = row_reduce(l)\n"
LATE = "    l = map(l, lambda sum: 2.0 * sum if sum > 1.0e9 else sum)\n"
PLAIN = "    l = map(l, lambda sum: sum + 0.0)\n"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(Store.open(tmp_path_factory.mktemp("free") / "store.git")) as made:
        yield made


@pytest.fixture
def work(bench: Bench) -> Iterator[Adaptation]:
    """A session whose rules' hunks are accepted."""
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package, specialisation={"D": "64"})
    session = start(bench, package, find_spec("causal"), options, "tester")
    with bench.store.writer(session, wait=5) as writer:
        made = Adaptation(bench, writer, "tester")
        made.lift()
        made.accept_all(made.propose_by_rules())
        yield made


def test_a_persons_branch_that_no_run_takes_is_no_pass(work: Adaptation) -> None:
    by_rules = work.judge_target()
    assert by_rules.kind is VerdictKind.PASS
    assert work.ruled() == work.target
    text = print_module(work.target)
    assert text.count(SUM) == 1
    plain = propose_by_person(work, text.replace(SUM, SUM + PLAIN))
    work.accept_all(plain)
    assert work.ruled() != work.target
    verdict = work.judge_target()
    assert verdict.kind is VerdictKind.PASS, verdict.reason
    assert len(verdict.details["runs"]) > len(by_rules.details["runs"])
    late = propose_by_person(work, text.replace(SUM, SUM + LATE))
    work.accept_all(late)
    verdict = work.judge_target()
    assert verdict.kind is VerdictKind.FAIL
    assert "no run has `sum > 1000000000.0` (flash_fwd)" in verdict.reason
    assert str(verdict.details["op"]).startswith("flash_fwd/")


def test_a_rules_hunk_as_a_person_edited_it_is_the_persons(work: Adaptation) -> None:
    (proposal,) = work.edits
    hunk = next(h for h in proposal.hunks if "keep(" in h.after)
    edited = hunk.after.replace("lambda i, j: ", "lambda i, j: j < 2147483647 and ")
    assert edited != hunk.after
    name = f"{proposal.id}/{hunk.id}"
    work.decide(Decision(name, DecisionKind.EDITED, "tester", replacement=edited))
    assert "2147483647" in print_module(work.target)
    verdict = work.judge_target()
    # No length that a whole number of 32 bits can be is past it: there is no other side.
    assert verdict.kind is VerdictKind.PASS, verdict.reason
    edited = hunk.after.replace("lambda i, j: ", "lambda i, j: j < 90000 and ")
    work.decide(Decision(name, DecisionKind.EDITED, "tester", replacement=edited))
    verdict = work.judge_target()
    assert verdict.kind is VerdictKind.FAIL
    assert "no run has `j >= 90000` (flash_fwd)" in verdict.reason
