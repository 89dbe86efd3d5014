"""Hunks in a replayed text: what a proposal or a decision is about, at its place, also where the
text has not taken it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cubridge_tui.console import typeable
from cubridge_tui.model.linediff import Ops, opcodes
from cubridge_tui.model.rows import Row, RowKind, plain_rows
from cubridge_tui.text.cells import split_lines
from engine.errors import CuBridgeError
from engine.service.session.proposal_kinds import edits
from engine.types import DecisionKind, Hunk, Proposal
from sessions.events import HunkCommented, HunkDecided, ProposalMade
from sessions.replay import Step

Content = Callable[[str], bytes]
_WORDS: Mapping[DecisionKind | None, str] = {
    DecisionKind.ACCEPTED: "accepted", DecisionKind.REJECTED: "rejected",
    DecisionKind.EDITED: "edited", None: "undecided",
}  # fmt: skip


def hunks_of(each: Step) -> tuple[Proposal, tuple[Hunk, ...]] | None:
    """The hunks of the target that a step is about; None where it is about something else."""
    found: tuple[Proposal, tuple[Hunk, ...]] | None
    match each.event.body:
        case ProposalMade(proposal):
            found = (proposal, proposal.hunks)
        case HunkDecided(decision):
            found = _decided(each) or _named(each, decision.target)
        case HunkCommented(target):
            found = _named(each, target)
        case _:
            return None
    return found if found is not None and edits((found[0],)) and found[1] else None


def _decided(each: Step) -> tuple[Proposal, tuple[Hunk, ...]] | None:
    """The hunks that are decided otherwise after the step, of the last proposal with any."""
    for proposal in reversed(each.after.proposals):
        changed = tuple(
            h for h in proposal.hunks
            if each.before.decision(proposal.id, h.id) != each.after.decision(proposal.id, h.id)
        )  # fmt: skip
        if changed:
            return proposal, changed
    return None


def _named(each: Step, target: str) -> tuple[Proposal, tuple[Hunk, ...]] | None:
    one = each.before.find_hunk(target)
    if one is not None:
        return one[0], (one[1],)
    whole = next((p for p in reversed(each.before.proposals) if p.id == target), None)
    return None if whole is None else (whole, whole.hunks)


def with_hunks(lines: Sequence[str], each: Step, content: Content) -> tuple[Row, ...]:
    """The text with the hunks that the step is about at their places: those that it has marked,
    what the others would give as rows without a number."""
    rows = list(plain_rows(lines))
    found = hunks_of(each)
    if found is None:
        return tuple(rows)
    proposal, hunks = found
    proposed = _proposed(each, proposal, content)
    ops = opcodes(lines, proposed)
    placed = [
        (place[0], n, place[1], hunk) for n, hunk in enumerate(hunks)
        if (place := _place(lines, proposed, ops, hunk)) is not None
    ]  # fmt: skip
    for at, _, size, hunk in sorted(placed, key=lambda p: p[:2], reverse=True):
        decision = each.after.decision(proposal.id, hunk.id)
        kind = decision.kind if decision is not None else None
        name = f"{proposal.id}/{hunk.id}"
        head = f"{hunk.id} {typeable(hunk.title)} · {hunk.origin.value} · {_WORDS[kind]}"
        new = [Row(head, RowKind.HEAD, None, hunk.origin.value, name)]
        if size:  # and what it took the place of
            gone, indent = split_lines(hunk.before.rstrip("\n")), _indent(lines, at)
            new += [Row(indent + line, RowKind.DEL, None, "expert", name) for line in gone if line]
        for row in rows[at : at + size]:  # there as proposed
            new.append(Row(row.text, RowKind.ADD, row.number, hunk.origin.value, name))
        if not size:
            edited = decision.replacement if decision is not None else None
            text = hunk.after if edited is None else edited
            before = _block(hunk.before)
            old = len(before) if _stripped(lines[at : at + len(before)]) == before else 0
            refused = kind is DecisionKind.REJECTED
            stays = RowKind.SAME if refused else RowKind.OUT_DEL
            rows[at : at + old] = [
                Row(row.text, stays, row.number, "expert", name) for row in rows[at : at + old]
            ]
            indent = _indent(lines, at)
            sign = "x" if refused else ""
            out = [
                Row(indent + line, RowKind.OUT_ADD, None, hunk.origin.value, name, None, sign)
                for line in split_lines(text.rstrip("\n")) if text.strip()
            ]  # fmt: skip
            new += [*rows[at : at + old], *out]
            size = old
        rows[at : at + size] = new
    return tuple(rows)


def _proposed(each: Step, proposal: Proposal, content: Content) -> list[str]:
    """The whole text that the proposal proposes; empty where it was not kept."""
    for kept in each.after.transcripts:
        if kept.about == proposal.id and kept.name.endswith(".proposed.cuir"):
            try:
                return split_lines(content(kept.sha256).decode("utf-8", "surrogateescape"))
            except CuBridgeError:
                return []
    return []


def _place(
    lines: Sequence[str], proposed: Sequence[str], ops: Ops, hunk: Hunk
) -> tuple[int, int] | None:
    """Where the hunk is in a text, and how many of the lines there it gave; 0 where the text has
    not taken it."""
    after, before = _block(hunk.after), _block(hunk.before)
    there = _find(proposed, after) if after else None
    near = _mapped(ops, there) if there is not None else None
    taken = _find(lines, after, near) if after else None
    if taken is not None:
        return taken, len(after)
    old = _find(lines, before, near) if before else None
    place = old if old is not None else near
    return None if place is None else (place, 0)


def _mapped(ops: Ops, line: int) -> int | None:
    """The line of the text that stands where a line of the proposed text does."""
    for _, i1, i2, j1, j2 in ops:
        if j1 <= line < j2:
            return min(i1 + line - j1, i2)
    return None


def _find(lines: Sequence[str], block: Sequence[str], near: int | None = None) -> int | None:
    """Where a block of stripped lines stands: the place nearest to `near`, else the first."""
    stripped = _stripped(lines)
    found = [i for i in range(len(lines) - len(block) + 1) if stripped[i : i + len(block)] == block]
    return min(found, key=lambda i: abs(i - (near or 0)), default=None)


def _block(text: str) -> list[str]:
    return _stripped(split_lines(text.rstrip("\n"))) if text.strip() else []


def _stripped(lines: Sequence[str]) -> list[str]:
    return [line.strip() for line in lines]


def _indent(lines: Sequence[str], at: int) -> str:
    """The indentation of the text about a place."""
    line = next((x for x in lines[at:] if x.strip()), "")
    return line[: len(line) - len(line.lstrip())]
