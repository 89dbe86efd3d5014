"""A target without some of its hunks, tried at a few sizes: what is wrong is told in few words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_module
from engine.gates.g1_g2.few_sizes import tried
from engine.gates.outcome import Trial
from engine.lower.spelling.legal import legal
from engine.spec import Recipe
from engine.transfer.binding import Binding
from engine.transfer.proposals.review import compose, propose
from engine.transfer.rules import apply, plan
from engine.types import Decision, DecisionKind, Origin, Proposal
from tests.engine.transfer.recipes import VARIANTS, lifted

RECIPE = VARIANTS["softcap_causal"]


@dataclass(frozen=True)
class Proposed:
    """What the rules propose for a recipe."""

    base: Module
    binding: Binding
    target: Module
    proposal: Proposal

    def without(self, *words: str) -> Module:
        """The target without the hunks whose new text has any of these words."""
        gone = [id for word in words for id in self.hunks(word)]
        assert gone or not words
        return self.without_hunks(*gone)

    def hunks(self, word: str) -> list[str]:
        """The hunks whose new text has the word."""
        return [h.id for h in self.proposal.hunks if word in h.after]

    def without_hunks(self, *gone: str) -> Module:
        kept = (h.id for h in self.proposal.hunks if h.id not in gone)
        taken = {id: Decision(id, DecisionKind.ACCEPTED, "") for id in kept}
        return legal(compose(self.base, self.target, self.proposal, taken))


def proposed(base: Module, recipe: Recipe) -> Proposed:
    planned = plan(base, recipe)
    trail = tuple(apply(base, planned.steps))
    made = propose(
        base, trail[-1][1], id="rules", origin=Origin.RULES, reason="r", ids=assign(base),
        trail=trail,
    )  # fmt: skip
    return Proposed(base, planned.binding, trail[-1][1], made)


PLAN = proposed(lifted("flash_fwd_sm80"), RECIPE)


@pytest.mark.parametrize(
    ("gone", "fault"),
    [
        ((), ""),
        (("last = min(q0",), ""),  # the tiles behind the mask are visited, and masked
        (("n * BN + BN + args.Nq",), "the keep set differs: at b=0, h=0, i="),
        (("rcp_approx",), "O is wrong in 274 of 274 rows"),
        (("m_ok = ", "m_ok)", "m_ok"), "NaN in rows without a kept key"),
        (
            ("copy_async_rows(sV[stage]",),
            "NaN in K and V at keys that queries 0 to 127 do not keep",
        ),
    ],
)
def test_a_fault_in_few_words(gone: tuple[str, ...], fault: str) -> None:
    found = tried(PLAN.without(*gone), RECIPE, PLAN.binding)
    assert found.checks and bool(found.fault) == bool(fault) and found.fault.startswith(fault)
    assert "137 x 214" in found.sizes


def test_a_block_comes_to_its_third_piece_of_work() -> None:
    recipe = VARIANTS["document"]
    plan = proposed(lifted("flash_fwd_sm90"), recipe)
    found = tried(plan.without("arrive(next_empty"), recipe, plan.binding)
    assert found.checks and found.fault.startswith("it hangs, nothing ends this wait: wait(")
    assert "wait(next_empty[turn % 2]" in found.fault


def test_warps_that_do_not_take_the_same_piece_of_work() -> None:
    """One half of a block goes by tickets, the other over the grid: the same where one block runs
    alone, or all take turns."""
    recipe = VARIANTS["document"]
    plan = proposed(lifted("flash_fwd_sm90"), recipe)
    loops = plan.hunks("then(next)")
    assert len(loops) == 2
    for loop in loops:
        found = tried(plan.without_hunks(loop), recipe, plan.binding)
        assert found.fault.startswith("it hangs, nothing ends this wait: wait(q_full[group]")


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        (
            "wait(q_full[group], round % 2)",
            "wait(q_full[group], 1)",
            "passes before the phase that brings the data has completed",
        ),
        (
            "wait(k_empty[stage], 1 - parity)",
            "wait(k_empty[stage], parity)",
            "waits for phase 0 of a barrier on which nobody can arrive",
        ),
    ],
)
def test_a_wait_for_the_wrong_phase_hangs_or_passes_too_early(
    right: str, wrong: str, fault: str
) -> None:
    plan = proposed(lifted("flash_fwd_sm90"), RECIPE)
    text = print_module(plan.target)
    assert right in text
    found = tried(parse_module(text.replace(right, wrong), "target"), RECIPE, plan.binding)
    assert found.checks and found.fault.startswith(fault) and f": {wrong}" in found.fault


def test_what_is_no_program_is_not_run() -> None:
    found = tried(PLAN.without("score_factor = "), RECIPE, PLAN.binding)
    said = "score_factor is not defined: s = map(s, lambda x: rcp_approx("
    assert not found.checks and found.fault.startswith(said)


def test_no_size_that_the_spec_allows_is_no_answer() -> None:
    recipe = replace(RECIPE, constraints=(parse_expr("Nq % 1000 == 0"),))
    found = tried(PLAN.without(), recipe, PLAN.binding)
    assert found == Trial(problem="the spec allows none of the sizes that are tried")


def test_nothing_of_a_person_s_is_run() -> None:
    made = replace(RECIPE.inputs[0], name="table", role="extra", derive="line 1")
    recipe = replace(RECIPE, inputs=(*RECIPE.inputs, made))
    found = tried(PLAN.without(), recipe, PLAN.binding)
    assert found == Trial(problem="the spec computes some of its inputs itself")
