"""A session about a kernel of others onto a new version of it.

The new version is probed, and the rules propose again at the places found there. Beside that, what
was proposed and decided is moved onto the new text by itself, and a hunk is decided where the two
agree. What a person wrote in a hunk's place is merged in there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import InputError
from engine.graft.edits import Edit, Files, edited, grouped, lines_with
from engine.graft.moved import Moved, Same, told
from engine.service.executed.executed_work import FILES, ExecutedAdaptation, chosen, edits_in
from engine.service.session.adaptation import Adaptation
from engine.service.session.content import SOURCE
from engine.service.upkeep.newer import DIFFERS, Newer, Rebase
from engine.types import Artifact, Decision, DecisionKind, Hunk, Stage

Move = Callable[[Edit], Edit | None]


@dataclass(frozen=True, slots=True)
class _Was:
    """A hunk of the old proposal as it is on the new text.

    Args:
        edits: what the rules made of it; None for an edit that meets a change.
        own: what a person put in its place; None where an edit of it meets a change.
    """

    hunk: Hunk
    title: str
    kind: DecisionKind | None
    edits: frozenset[Same | None]
    own: tuple[Edit, ...] | None


def plan_executed(work: Adaptation, newer: Newer) -> Rebase:
    """What the session's decisions are on another version of its kernel.

    Raises:
        InputError: a session that does not keep its files' texts, or a person's text that has no
            place any more.
        TransferError: the rules do not carry the spec to the new version.
    """
    assert isinstance(work, ExecutedAdaptation)
    fresh = ExecutedAdaptation(work.bench, work.writer, work.actor, newer.package)
    expert = (Artifact.of(Stage.SOURCE, SOURCE, newer.package.source), *fresh.lifted_artifacts())
    old, moves = _moves(work, fresh)
    changes = sum((m.changes for m in moves.values()), Counter[str]())
    made = Rebase(
        newer, expert, dict(sorted(changes.items())), sum(m.renamed for m in moves.values()),
        "the same text but for blanks and comments, in the files that were probed",
    )  # fmt: skip
    recipe = work.recipe
    if not work.edits or recipe is None:
        return made
    files = fresh.files()
    was = _hunks_before(work, old, files, lambda e: moves[e.file](e) if e.file in moves else None)
    proposed = fresh.proposed_by_rules(recipe)
    proposal = proposed.proposal
    groups = grouped(edits_in(proposed.text), files)
    decided: dict[str, Decision] = {}
    lost = [w for w in was if w.kind is DecisionKind.EDITED]
    for hunk, group in zip(proposal.hunks, groups, strict=True):
        found = _decided(group, files, was)
        if found is not None:
            before, text = found
            lost = [w for w in lost if w is not before]
            target = f"{proposal.id}/{hunk.id}"
            assert before.kind is not None
            decided[hunk.id] = Decision(target, before.kind, work.actor, replacement=text)
    for w in lost:
        if w.title not in {group[0].title for group in groups}:
            raise InputError(
                f"the rules propose nothing on the new kernel where you wrote {w.hunk.id}: "
                f"{w.title}",
                fix="start a new session on the new kernel",
            )
    hunks: list[Hunk] = []
    for hunk, group in zip(proposal.hunks, groups, strict=True):
        why = hunk.reason
        if own := [w.hunk.id for w in lost if w.title == group[0].title]:
            decided.pop(hunk.id, None)
            why += f"; what you wrote as {', '.join(own)} has no place here as it stands"
        open_ = hunk.id not in decided and None not in {w.kind for w in was}
        hunks.append(replace(hunk, reason=f"{DIFFERS}{why}" if open_ else why))
    proposal = replace(proposal, hunks=tuple(hunks))
    last = fresh.target_of(chosen(proposal.hunks, groups, decided, files)) if decided else []
    return replace(made, proposed=replace(proposed, proposal=proposal), decided=decided,
                   target=tuple(last))  # fmt: skip


def _moves(work: ExecutedAdaptation, fresh: ExecutedAdaptation) -> tuple[Files, dict[Path, Moved]]:
    """The old files, and which token of each is which of the new file of its name; the source is
    the source whatever it is called."""
    if FILES not in work.state.stage(Stage.LIFTED).artifacts:
        raise InputError(
            f"{work.session.id} was begun by a version that does not keep what a rebase needs",
            fix="start a new session on the new kernel",
        )
    kept = json.loads(work.text(Stage.LIFTED, FILES))
    old = {Path(k["file"]): str(k["text"]).encode("utf-8", "surrogateescape") for k in kept}
    files, names = fresh.files(), {name: file for file, name in fresh.names().items()}
    partners = {Path(k["file"]): names.get(k["name"]) for k in kept[1:]}
    partners[Path(kept[0]["file"])] = next(iter(files))
    moves = {a: Moved(old[a], files[b], b) for a, b in partners.items() if b is not None}
    return old, moves


def _hunks_before(work: ExecutedAdaptation, old: Files, files: Files, move: Move) -> list[_Was]:
    out: list[_Was] = []
    for proposal in work.edits:
        decisions = work.decisions(proposal)
        groups = grouped(work.edits_of(proposal), old)
        for hunk, group in zip(proposal.hunks, groups, strict=True):
            decision = decisions.get(hunk.id)
            there = map(move, group)
            edits = frozenset(told(e, files) if e is not None else None for e in there)
            text = decision.replacement if decision is not None else None
            own = [move(e) for e in edited(group, old, text)] if text is not None else [None]
            kept = tuple(e for e in own if e is not None)
            out.append(
                _Was(hunk, group[0].title, decision.kind if decision is not None else None, edits,
                     kept if len(kept) == len(own) else None)
            )  # fmt: skip
    return out


def _decided(
    group: Sequence[Edit], files: Files, was: Sequence[_Was]
) -> tuple[_Was, str | None] | None:
    """A hunk that says what was decided of exactly these edits, with the text that a person put in
    their place."""
    edits = frozenset(told(e, files) for e in group)
    about = [w for w in was if w.edits & edits]
    known = frozenset().union(*(w.edits for w in about))
    if len({w.kind for w in about}) != 1 or about[0].kind is None or not edits <= known:
        return None
    first = about[0]
    if first.kind is not DecisionKind.EDITED:
        return first, None
    text = None
    if len(about) == 1 and first.edits == edits and first.own is not None:
        text = lines_with(files, group, first.own)
    return None if text is None else (first, text)
