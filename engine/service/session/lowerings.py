"""Lowerings that were written by a model or a person, in a session: proposals about the lowered
source, whose hunks are the regions that they change. What stands of one belongs to the lifted and
the target text that it was made for; for any other the templates lower."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.errors import LiftError, LowerError
from engine.lift.cpp.provenance import Range
from engine.lower.lower import Lowered, changed_lines, lift_for
from engine.lower.spelling.legal import legal
from engine.service.session.proposal_kinds import ABOUT_LOWERINGS
from engine.transfer.llm.lowering import LowerTask, fitted, lowered_source
from engine.types import Decision, DecisionKind, Hunk, Origin, Proposal, Stage, sha256_of
from engine.types.plain import read, read_object

if TYPE_CHECKING:
    from engine.service.session.stage_work import Work
    from sessions.state import SessionState


def lower_task(work: Work, why: str = "", instruction: str = "") -> LowerTask:
    """The task of writing the session's target into its source."""
    return LowerTask.of(work.package.name, work.lifted, work.target, why, instruction)


def written_lowering(work: Work, latest: Sequence[Decision] = ()) -> Lowered | None:
    """The latest written lowering of which hunks are accepted, if it is one of the present target.

    `latest` are decisions on top of the session's.
    """
    for proposal in reversed(work.state.proposals):
        if not proposal.id.startswith(ABOUT_LOWERINGS):
            continue
        chosen: dict[str, str] = {}
        for hunk in proposal.hunks:
            decision = work.state.decision(proposal.id, hunk.id, latest)
            if decision is None or decision.kind is DecisionKind.REJECTED:
                continue
            edited = decision.replacement
            chosen[hunk.id] = hunk.after if edited is None else edited
        if chosen and _belongs(work, proposal):
            return _composed(work, chosen)
    return None


def _composed(work: Work, texts: dict[str, str]) -> Lowered:
    task = lower_task(work)
    known = {r.name: r for r in task.regions}
    fit = {name: fitted(text, known[name], task) for name, text in texts.items()}
    data = lowered_source(fit, task)
    target = legal(work.target)
    places: dict[tuple[str | int, ...], Range] = {}
    try:
        again = lift_for(data, target, entry=work.package.entry)
        places = {path: span.range for path, span in again.provenance.items()}
    except (LiftError, LowerError):
        pass  # G3 says what is wrong with it
    source = task.lifted.source
    return Lowered(data, target, places, changed_lines(source, data), len(source.splitlines()))


def subject_text(work: Work) -> str:
    """What a written lowering is for, as the session keeps it beside its proposal."""
    return _subject(work.state)


def _subject(state: SessionState) -> str:
    data = {
        "schema": 1,
        "lifted": state.stage(Stage.SOURCE).artifacts.get("kernel.cu", ""),
        "target": state.stage(Stage.TARGET).artifacts.get("target.cuir", ""),
    }
    return json.dumps(data, indent=2) + "\n"


def present_lowering(state: SessionState) -> Proposal | None:
    """The latest written lowering for the present source and target, decided on or not."""
    subject = sha256_of(_subject(state))
    names = {t.name for t in state.transcripts if t.sha256 == subject}
    found = (p for p in reversed(state.proposals) if subject_name(p.id) in names)
    return next(found, None)


def _belongs(work: Work, proposal: Proposal) -> bool:
    name = subject_name(proposal.id)
    for transcript in reversed(work.state.transcripts):
        if transcript.name == name:
            obj = read_object(json.loads(work.session.content(transcript.sha256)), name)
            now = json.loads(subject_text(work))
            return all(read(obj, key, str) == now[key] for key in ("lifted", "target"))
    return False


def subject_name(proposal: str) -> str:
    return f"{proposal}.subject.json"


def lowering_proposal(
    task: LowerTask, id: str, texts: dict[str, str], reason: str, transcript: str | None = None
) -> Proposal:
    """One hunk per changed region, before and after as C++."""
    source = task.lifted.source
    hunks = []
    for region in task.regions:
        if region.name not in texts:
            continue
        first = source.count(b"\n", 0, region.place.start) + 1
        last = source.count(b"\n", 0, max(region.place.end - 1, region.place.start)) + 1
        lines = f"line {first}" if first == last else f"lines {first} to {last}"
        verb = "Write at" if region.empty else "Rewrite"
        hunks.append(
            Hunk(
                region.name, f"{verb} {lines} of the source", reason, "lowering",
                task.text(region), texts[region.name], (), Origin.MODEL,
            )
        )  # fmt: skip
    return Proposal(id, Origin.MODEL, reason, tuple(hunks), transcript)
