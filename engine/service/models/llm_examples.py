"""Accepted edits of earlier sessions, to be cited in a prompt: offered, visible, removable."""

from __future__ import annotations

from engine.errors import CuBridgeError, InputError
from engine.service.session.proposal_kinds import edits
from engine.transfer.llm.prompt import Example
from engine.types import DecisionKind, Level
from sessions.session import Session
from sessions.store import Store

OFFERED = 3


def accepted_example(session: Session) -> Example:
    """What a session's person accepted, to be cited in another one's prompt.

    Raises:
        InputError: nothing was accepted there, or no hunk stands.
    """
    state = session.state
    hunks = [
        (hunk.before, decision.replacement if decision.replacement is not None else hunk.after)
        for proposal in edits(state.proposals)
        for hunk in proposal.hunks
        if (decision := state.decision(proposal.id, hunk.id)) is not None
        and decision.kind is not DecisionKind.REJECTED
    ]
    if state.acceptance is None or not hunks:
        raise InputError(
            f"session {session.id} has no accepted edit to show",
            fix="name a session whose kernel was accepted",
        )
    return Example(session.id, state.title, tuple(hunks))


def offered_examples(store: Store, kernel: str, but: str = "") -> tuple[Example, ...]:
    """The newest accepted edits of the same kernel whose level still holds, at most three: what a
    person may add to a prompt. `but` is the session that asks."""
    out: list[Example] = []
    for row in store.sessions():
        shown = row.id != but and row.kernel == kernel and not row.damaged
        if not shown or row.accepted not in (Level.CPU_VERIFIED, Level.GPU_VERIFIED):
            continue
        try:
            out.append(accepted_example(store.load(row.id)))
        except CuBridgeError:
            continue  # nothing of it can be shown
        if len(out) == OFFERED:
            break
    return tuple(out)
