"""A hunk's title is the rule's that wrote its text, not that of one which changed a part later."""

from __future__ import annotations

import pytest

from engine.cuir.changes.ids import assign
from engine.transfer.proposals.review import propose
from engine.transfer.rules import apply, plan
from engine.types import Hunk, Origin
from tests.engine.transfer.recipes import VARIANTS, lifted

SHARED = "Compute what all elements share once"


def hunks(variant: str, kernel: str) -> tuple[tuple[Hunk, ...], set[str]]:
    base = lifted(kernel)
    planned = plan(base, VARIANTS[variant])
    trail = list(apply(base, planned.steps))
    made = propose(
        base, trail[-1][1], id="rules", origin=Origin.RULES, reason="r", ids=assign(base),
        trail=trail,
    )  # fmt: skip
    return made.hunks, {step.title for step in planned.steps}


@pytest.mark.parametrize(
    ("variant", "text", "title"),
    [
        ("softcap_causal", "exp2_approx(x", "Compute the spec's score"),
        ("softcap_causal", "score_factor = ", SHARED),
        ("softcap_causal", "s = keep(s", "Keep what the spec keeps"),
        ("softcap_causal", "m_ok = ", "Guard rows without a kept key"),
        ("sigmoid", "s = map(s", "Replace softmax by the spec's own weight"),
        ("alibi_causal", "s = map(s", "Compute the spec's score"),
        ("bias", "bias: tensor", "Pass bias to the kernel"),
    ],
)
@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
def test_the_rule_that_wrote_the_text_names_the_hunk(
    variant: str, text: str, title: str, kernel: str
) -> None:
    made, titles = hunks(variant, kernel)
    found = [h for h in made if text in h.after and text not in h.before]
    found = found or [h for h in made if text in h.after]
    assert found and found[0].title.split("; ")[0] == title, [(h.title, h.after) for h in made]
    for hunk in made:
        assert set(hunk.title.split("; ")) <= titles
