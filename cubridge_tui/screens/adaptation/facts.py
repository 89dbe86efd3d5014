"""A session's state as conditions of actions ask about it."""

from __future__ import annotations

from cubridge_tui.model.facts import Facts
from cubridge_tui.model.next_step import accept_blocked, first_failed, owed_now, undecided, unmeant
from cubridge_tui.model.snapshot import Snapshot
from engine.types import Stage


def facts_of(snap: Snapshot) -> Facts:
    """What conditions ask about a snapshot, whatever the cursor and the jobs do."""
    state = snap.state
    step = owed_now(state, snap.changed)
    failed = first_failed(state)
    return Facts(
        session=snap.session,
        read_only=snap.read_only,
        step_blocked=step.blocked or ("" if step.step else step.words),
        diff_blocked=snap.diff_blocked,
        accept_blocked=accept_blocked(state),
        hunks=len(snap.all_hunks),
        proposed=bool(state.proposals),
        open=undecided(state),
        undo=snap.undo_words,
        redo=snap.redo_words,
        accepted=state.acceptance is not None and state.acceptance_is_current,
        failed=failed.gate.value if failed else "",
        changed=snap.changed,
        lowered=bool(state.stage(Stage.LOWERED).artifacts),
        recipe=snap.recipe is not None,
        lifted=bool(state.stage(Stage.LIFTED).artifacts),
        unmeant=unmeant(state),
    )
