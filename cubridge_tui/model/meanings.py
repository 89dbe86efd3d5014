"""Meanings of opaque ops as a person reviews them: which ops, which step, and rows in the pane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cubridge_tui.model.links import lifted_name
from cubridge_tui.model.review import head_of
from cubridge_tui.model.rows import Key, Row, RowKind
from engine.cuir.nodes import Opaque, Path
from engine.cuir.rewrite import get
from engine.service.session.meanings import step_of
from engine.service.session.stage_work import Work
from engine.transfer.llm.lifting import Step
from engine.types import Decision, DecisionKind, Hunk, Proposal
from sessions.state import SessionState

Decided = tuple[Proposal, Hunk, Decision | None]
UNKNOWN, ASSUMED = "?", "≈"  # signs in the gutter: no meaning; one that no GPU has confirmed


@dataclass(frozen=True, slots=True)
class OpaqueNote:
    """An opaque op: its text, why the lifter does not know it, and whether it has a meaning."""

    id: str
    path: Path
    line: int  # of the source
    text: str
    reason: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    meant: bool

    def holds(self, key: Key | None) -> bool:
        """Whether a row with this key shows the op, or a statement of its meaning."""
        mine = lifted_name(self.path)
        return key is not None and key[0] == mine[0] and key[1][: len(self.path)] == self.path


def opaque_notes(work: Work) -> tuple[OpaqueNote, ...]:
    """The opaque ops of the session's source, in its order."""
    from engine.cuir.changes.ids import assign

    bare, lifted = work.bare, work.lifted
    if not bare.opaque:
        return ()
    ids, left = assign(bare.module), {op.path for op in lifted.opaque}
    out = []
    for op in bare.opaque:
        stmt = get(bare.module, op.path)
        assert isinstance(stmt, Opaque)
        out.append(
            OpaqueNote(
                ids[op.path], op.path, op.span.start_line, stmt.text, op.reason, stmt.reads,
                stmt.writes, op.path not in left,
            )
        )  # fmt: skip
    return tuple(out)


# --- where the three steps are --------------------------------------------------------------------


def about_meanings(state: SessionState) -> tuple[Decided, ...]:
    """Of every op and step the latest hunk, with its decision."""
    latest: dict[tuple[str, Step], Decided] = {}
    for proposal in state.proposals:
        step = step_of(proposal)
        if step is None:
            continue
        for hunk in proposal.hunks:
            decision = state.decision(proposal.id, hunk.id)
            latest.pop((hunk.id, step), None)
            latest[hunk.id, step] = (proposal, hunk, decision)
    return tuple(latest.values())


def open_meanings(state: SessionState) -> int:
    """Meanings that nobody decided on."""
    return sum(d is None for _, _, d in about_meanings(state))


def wanted_step(state: SessionState) -> Step | None:
    """The step that follows what was accepted, while an op waits for it and nobody refused it."""
    kinds: dict[str, dict[Step, DecisionKind]] = {}
    for proposal, hunk, decision in about_meanings(state):
        step = step_of(proposal)
        if step is not None and decision is not None:
            kinds.setdefault(hunk.id, {})[step] = decision.kind
    refused = DecisionKind.REJECTED
    for before, step in ((Step.ANNOTATE, Step.BIND), (Step.BIND, Step.TRANSLATE)):
        for said in kinds.values():
            if said.get(before, refused) is not refused and step not in said:
                return step
    return None


def step_word(step: Step) -> str:
    """`annotate 1/3, what the ops do`."""
    steps = list(Step)
    return f"{step.value} {1 + steps.index(step)}/{len(steps)}, {step.words}"


# --- rows -----------------------------------------------------------------------------------------


def meaning_rows(
    rows: Sequence[Row], ops: Sequence[OpaqueNote], hunks: Sequence[Decided],
    drafts: Mapping[str, tuple[str, str]], proven: bool,
) -> tuple[Row, ...]:  # fmt: skip
    """The lifted rows with what is said of each opaque op beside it. `proven`: G4 passed."""
    meant = "" if proven else ASSUMED
    by_key = {lifted_name(op.path): op for op in ops}
    out: list[Row] = []
    inside: tuple[OpaqueNote, Decided | None] | None = None
    for row in rows:
        op = by_key.get(row.key) if row.key is not None else None
        if op is not None:
            told = [d for d in hunks if d[1].id == op.id]
            last = next((d for d in told if _stands(d) and op.meant), None)
            out.append(replace(row, sign=meant if op.meant else UNKNOWN))
            indent = row.text[: len(row.text) - len(row.text.lstrip())]
            for decided in [last] if last is not None else told:
                note = "" if proven else "assumed until G4 passes"
                out += _hunk_rows(decided, row.key, indent, drafts, decided is last, note)
            inside = (op, last)
        elif inside is not None and inside[1] is not None and inside[0].holds(row.key):
            proposal, hunk, decision = inside[1]
            edited = decision is not None and decision.kind is DecisionKind.EDITED
            origin = "person" if edited else hunk.origin.value
            name = f"{proposal.id}/{hunk.id}"
            out.append(replace(row, kind=RowKind.ADD, hunk=name, origin=origin, sign=meant))
        else:
            inside = None
            out.append(row)
    return tuple(out)


def _stands(decided: Decided) -> bool:
    proposal, _, decision = decided
    taken = decision is not None and decision.kind is not DecisionKind.REJECTED
    return taken and step_of(proposal) is Step.TRANSLATE


def _hunk_rows(
    decided: Decided, key: Key | None, indent: str, drafts: Mapping[str, tuple[str, str]],
    stands: bool, note: str,
) -> Iterator[Row]:  # fmt: skip
    """A head line and, where the lifted text does not show it itself, what is proposed."""
    proposal, hunk, decision = decided
    name = f"{proposal.id}/{hunk.id}"
    head = head_of(hunk, decision, drafts.get(name, ("", ""))[1])
    if stands and note:
        head += f" · {note}"
    yield Row(head, RowKind.HEAD, None, hunk.origin.value, name, key)
    if stands:
        return
    edited = decision.replacement if decision is not None else None
    origin = hunk.origin.value if edited is None else "person"
    refused = decision is not None and decision.kind is DecisionKind.REJECTED
    for line in (hunk.after if edited is None else edited).rstrip("\n").split("\n"):
        text = f"{indent}    {line}"
        if refused:
            yield Row(text, RowKind.OUT_ADD, None, origin, name, key, "x")
        else:
            yield Row(text, RowKind.ADD, None, origin, name, key)
