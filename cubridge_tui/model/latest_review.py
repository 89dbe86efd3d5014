"""The latest proposal of a session as rows to decide on, from what was decided before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cubridge_tui.model.kept_texts import KeptTexts
from cubridge_tui.model.links import Links, lifted_name, namer
from cubridge_tui.model.review import (
    Review,
    gives,
    of_hunks,
    renumbered,
    review,
    review_rows,
    same_program,
)
from cubridge_tui.model.rows import Row
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError
from engine.lift.cpp.provenance import Lifted
from engine.service.session.content import BINDING, LIFTED
from engine.service.session.stage_work import Work
from engine.service.views.costing import Question
from engine.service.views.hunk_words import Explained, explain
from engine.types import Proposal, Stage
from sessions.state import SessionState


def latest_review(
    texts: KeptTexts,
    drafts: Mapping[str, tuple[str, str]],
    lifted: Lifted | None,
    target_text: str | None,
    links: Links,
) -> tuple[tuple[Row, ...], bool, str]:
    """The latest proposal's rows, whether there are any, and why they may not be decided on."""
    work = texts.work
    state, proposals = work.state, work.edits
    executed = work.package.executed  # whose target is made by the first decision
    if not proposals or (not executed and (target_text is None or lifted is None)):
        return (), False, "there is no proposal to decide on"
    if state.outdated(Stage.TARGET):
        return (), False, f"the proposal is stale: {state.outdated(Stage.TARGET)} changed"
    proposal = proposals[-1]
    if lifted is None or target_text is None:  # the author's source: the target is a patch
        rows = review_rows(of_hunks(proposal), work.decisions(proposal), {})
        return tuple(replace(row, number=None) for row in rows), True, ""
    try:
        made: Review = texts.keep(
            ("review", *_key(state, proposals)),
            lambda: _review(work, lifted, *latest_pair(texts)),
        )
    except CuBridgeError as error:
        return (), False, f"the difference cannot be shown: {error.message}"
    errors = {
        h.id: drafts[name][1] for h in proposal.hunks if (name := f"{proposal.id}/{h.id}") in drafts
    }
    rows = review_rows(made, work.decisions(proposal), errors)
    if not gives(rows, target_text):
        # The target has C++'s conversions written out, which no hunk's own text shows.
        if not same_program(rows, target_text):
            return rows, True, "the hunks as shown are not the target: d shows it line by line"
        return rows, True, ""
    keys = links.lines.get(Stage.TARGET, {})
    by_line = [keys.get(n) for n in range(1, len(rows) + 1)]
    return renumbered(rows, by_line), True, ""


def explained(texts: KeptTexts, lifted: Lifted | None) -> Mapping[str, Explained]:
    """What the latest proposal's hunks are, by `proposal/hunk`."""
    work = texts.work
    if lifted is None or not work.edits or work.state.outdated(Stage.TARGET):
        return {}
    proposal = work.edits[-1]

    def make() -> Mapping[str, Explained]:
        found = explain(*latest_pair(texts), proposal, work.recipe)
        return {f"{proposal.id}/{name}": each for name, each in found.items()}

    try:
        made: Mapping[str, Explained] = texts.keep(
            ("explained", *_key(work.state, work.edits)), make
        )
    except CuBridgeError:
        return {}  # the review says why
    return made


def question_of(
    texts: KeptTexts, lifted: Lifted | None, about: Mapping[str, Explained]
) -> Question | None:
    """What is asked of the cost model about the latest proposal; None where there is none."""
    work = texts.work
    if lifted is None or not about:
        return None
    latest = work.edits[-1]

    def make() -> Question:
        base = print_module(latest_pair(texts)[0])
        found = {h.id: about[f"{latest.id}/{h.id}"] for h in latest.hunks}
        binding = work.binding if BINDING in work.state.stage(Stage.TARGET).artifacts else None
        proposed = work.proposed_text(latest)
        return Question.of(base, proposed, latest, work.recipe, found, binding)

    made: Question = texts.keep(("question", *_key(work.state, work.edits)), make)
    return made


def latest_pair(texts: KeptTexts) -> tuple[Module, Module]:
    """What the latest proposal was made against, and what it proposes."""
    work = texts.work

    def make() -> tuple[Module, Module]:
        *earlier, latest = work.edits
        return work.decided(earlier), work.proposed(latest)

    found: tuple[Module, Module] = texts.keep(("pair", *_key(work.state, work.edits)), make)
    return found


def _key(state: SessionState, proposals: tuple[Proposal, ...]) -> tuple[Any, ...]:
    """What the latest proposal and its base depend on."""
    before = tuple(
        (p.id, h.id, state.decision(p.id, h.id)) for p in proposals[:-1] for h in p.hunks
    )
    lifted = state.stage(Stage.LIFTED).artifacts.get(LIFTED)
    return lifted, before, proposals[-1].id, proposals[-1].hunks


def _review(work: Work, lifted: Lifted, base: Module, proposed: Module) -> Review:
    own = lifted.module
    name = lifted_name if base is own else namer(own, base, lifted_name, "target")
    return review(base, proposed, work.edits[-1], name)
