"""A target without some of its hunks, tried at a few sizes: what is wrong is told in few words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module
from engine.gates.g1_g2.few_sizes import tried
from engine.gates.outcome import Trial
from engine.lower.spelling.legal import legal
from engine.transfer.proposals.review import compose, propose
from engine.transfer.rules import apply, plan
from engine.types import Decision, DecisionKind, Origin
from tests.engine.transfer.recipes import VARIANTS, lifted

BASE, RECIPE = lifted("flash_fwd_sm80"), VARIANTS["softcap_causal"]
PLAN = plan(BASE, RECIPE)
TRAIL = tuple(apply(BASE, PLAN.steps))
MADE = propose(
    BASE, TRAIL[-1][1], id="rules", origin=Origin.RULES, reason="r", ids=assign(BASE), trail=TRAIL
)  # fmt: skip


def without(*words: str) -> Module:
    """The target without the hunks whose new text has any of these words."""
    taken = {
        h.id: Decision(h.id, DecisionKind.ACCEPTED, "")
        for h in MADE.hunks
        if not any(word in h.after for word in words)
    }
    assert len(taken) < len(MADE.hunks) or not words
    return legal(compose(BASE, TRAIL[-1][1], MADE, taken))


@pytest.mark.parametrize(
    ("gone", "fault"),
    [
        ((), ""),
        (("last = min(q0",), ""),  # the tiles behind the mask are visited, and masked
        (("n * BN + BN + args.Nq",), "the keep set differs: at b=0, h=0, i="),
        (("rcp_approx",), "O is wrong in 274 of 274 rows"),
        (("m_ok = ", "m_ok)", "m_ok"), "NaN in rows without a kept key"),
        (("copy_async_rows(sV[stage]",), "NaN in K and V where rows 0 to 127 keep nothing"),
    ],
)
def test_a_fault_in_few_words(gone: tuple[str, ...], fault: str) -> None:
    found = tried(without(*gone), RECIPE, PLAN.binding)
    assert found.checks and bool(found.fault) == bool(fault) and found.fault.startswith(fault)
    assert "137 x 214" in found.sizes


def test_what_is_no_program_is_not_run() -> None:
    found = tried(without("score_factor = "), RECIPE, PLAN.binding)
    assert not found.checks and found.fault == "score_factor is not defined"


def test_nothing_of_a_person_s_is_run() -> None:
    made = replace(RECIPE.inputs[0], name="table", role="extra", derive="line 1")
    recipe = replace(RECIPE, inputs=(*RECIPE.inputs, made))
    found = tried(without(), recipe, PLAN.binding)
    assert found == Trial(problem="the spec computes some of its inputs itself")
