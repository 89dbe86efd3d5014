"""The latest proposal of a session as rows to decide on, from what was decided before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cubridge_tui.model.kept_texts import KeptTexts
from cubridge_tui.model.links import Links, lifted_name, namer
from cubridge_tui.model.review import (
    Review,
    gives,
    renumbered,
    review,
    review_rows,
    same_program,
)
from cubridge_tui.model.rows import Row
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.errors import CuBridgeError
from engine.lift.provenance import Lifted
from engine.service.work import Work
from engine.transfer.review import compose
from engine.types import Decision, Proposal, Stage
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
    if lifted is None or target_text is None or not proposals:
        return (), False, "there is no proposal to decide on"
    if state.outdated(Stage.TARGET):
        return (), False, f"the proposal is stale: {state.outdated(Stage.TARGET)} changed"
    proposal = proposals[-1]
    try:
        made: Review = texts.keep(
            ("review", _decided(state, proposals[:-1]), proposal.id, proposal.hunks),
            lambda: _review(work, lifted.module, proposal),
        )
    except CuBridgeError as error:
        return (), False, f"the difference cannot be shown: {error.message}"
    errors = {
        h.id: drafts[name][1] for h in proposal.hunks if (name := f"{proposal.id}/{h.id}") in drafts
    }
    rows = review_rows(made, _decisions(state, proposal), errors)
    if not gives(rows, target_text):
        # The target has C++'s conversions written out, which no hunk's own text shows.
        if not same_program(rows, target_text):
            return rows, True, "the hunks as shown are not the target: d shows it line by line"
        return rows, True, ""
    keys = links.lines.get(Stage.TARGET, {})
    by_line = [keys.get(n) for n in range(1, len(rows) + 1)]
    return renumbered(rows, by_line), True, ""


def _decisions(state: SessionState, proposal: Proposal) -> dict[str, Decision]:
    """What is decided of a proposal's hunks, by hunk."""
    return {h.id: d for h in proposal.hunks if (d := state.decision(proposal.id, h.id)) is not None}


def _decided(state: SessionState, proposals: tuple[Proposal, ...]) -> tuple[Any, ...]:
    return tuple((p.id, h.id, state.decision(p.id, h.id)) for p in proposals for h in p.hunks)


def _review(work: Work, base: Module, latest: Proposal) -> Review:
    for earlier in work.edits[:-1]:
        proposed = parse_module(work.proposed_text(earlier), f"{earlier.id}.cuir")
        base = compose(base, proposed, earlier, _decisions(work.state, earlier))
    proposed = parse_module(work.proposed_text(latest), f"{latest.id}.cuir")
    lifted = work.lifted.module
    name = lifted_name if base is lifted else namer(lifted, base, lifted_name, "target")
    return review(base, proposed, latest, name)
