"""Every proposal of a session to read, the ones that were decided on long ago too."""

from __future__ import annotations

from collections import Counter

from cubridge_tui.model.review import WORDS, head_of, with_comments
from cubridge_tui.model.rows import Row, RowKind
from cubridge_tui.model.snapshot import Snapshot
from engine.types import Proposal


def proposal_line(snap: Snapshot, proposal: Proposal) -> str:
    """Its id, whose it is, and what became of its hunks."""
    found = [snap.state.decision(proposal.id, h.id) for h in proposal.hunks]
    counts = Counter(WORDS[d.kind if d else None] for d in found)
    became = ", ".join(f"{n} {word}" for word, n in counts.items()) or "no hunks"
    return f"{proposal.id:<10} {proposal.origin.value:<7} {became}: {proposal.reason}"


def proposal_rows(snap: Snapshot, proposal: Proposal) -> tuple[Row, ...]:
    """Hunk by hunk: the decision, the reason, what it takes away and what it puts there."""
    rows: list[Row] = [Row(proposal.reason, RowKind.NOTE)]
    for hunk in proposal.hunks:
        decision = snap.state.decision(proposal.id, hunk.id)
        rows += [Row(""), Row(head_of(hunk, decision), RowKind.HEAD, origin=hunk.origin.value,
                             hunk=f"{proposal.id}/{hunk.id}")]  # fmt: skip
        rows.append(Row(f"  why: {hunk.reason}", RowKind.NOTE))
        rows += [Row(x, RowKind.DEL) for x in hunk.before.rstrip("\n").split("\n") if hunk.before]
        after, origin = hunk.after, hunk.origin.value
        rows += [
            Row(x, RowKind.ADD, origin=origin) for x in after.rstrip("\n").split("\n") if after
        ]
        edited = decision.replacement if decision is not None else None
        if edited is not None:
            rows.append(Row("  as a person edited it:", RowKind.NOTE))
            rows += [
                Row(x, RowKind.ADD, origin="person", sign="~")
                for x in edited.rstrip("\n").split("\n")
            ]
    return with_comments(rows, snap.state)
