"""Meanings of opaque ops in a session: the proposals that give them, and what stands of these.

A proposal about meanings has one hunk per op, whose id is the op's. What a person accepted, in the
order of the proposals, is the artifact `meanings.json` beside the lifted module; both are made
again by every decision, so the verdicts on the lifted stage belong to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine.cuir.changes.ids import assign
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, InputError
from engine.lift.files.meanings import Meaning, meanings_json, with_meanings
from engine.service.session.content import LIFTED, MEANINGS
from engine.service.session.proposal_kinds import ABOUT_MEANINGS
from engine.service.session.stage_work import Work
from engine.transfer.llm.answer import AnswerError
from engine.transfer.llm.lifting import LiftTask, Step, open_ops, part_text, read_part
from engine.types import Artifact, Decision, DecisionKind, Hunk, Origin, Proposal, Stage
from sessions.events import ArtifactSet, Body, HunkDecided
from sessions.state import SessionState

if TYPE_CHECKING:
    from engine.service.session.adaptation import Adaptation


def step_of(proposal: Proposal) -> Step | None:
    """Which step a proposal is, or None when it is no proposal about meanings."""
    if not proposal.id.startswith(ABOUT_MEANINGS):
        return None
    return Step(proposal.id.rpartition("-")[2])


def lift_task(work: Work, known: Mapping[str, Meaning], instruction: str = "") -> LiftTask:
    """The task for every opaque op of the session's source, whatever has been said of them."""
    bare = work.bare
    return LiftTask.of(
        work.package.name, bare, assign(bare.module), work.package.headers, known, instruction
    )


def standing(
    work: Work, latest: Sequence[Decision] = (), state: SessionState | None = None
) -> dict[str, Meaning]:
    """By op: what the accepted hunks say, `latest` on top of the decisions of the session, or of
    another `state` of it.

    Raises:
        InputError: an edited hunk that says what cannot be so.
    """
    known: dict[str, Meaning] = {}
    state = work.state if state is None else state
    for proposal in state.proposals:
        step = step_of(proposal)
        if step is None:
            continue
        task = lift_task(work, dict(known))
        for hunk in proposal.hunks:
            decision = state.decision(proposal.id, hunk.id, latest)
            if decision is None or decision.kind is DecisionKind.REJECTED:
                continue
            if hunk.id not in open_ops(step, task):
                continue  # the step that it rests on was taken back
            text = hunk.after if decision.replacement is None else decision.replacement
            try:
                said = read_part(step, hunk.id, text, task)
            except AnswerError as error:
                raise InputError(error.message, fix="mend the hunk's text") from None
            if said is not None:
                known[hunk.id] = said
    return known


def decide_meanings(work: Adaptation, *decisions: Decision) -> None:
    """Record decisions on hunks of such proposals; the lifted stage is made again from them all.

    Raises:
        InputError: an edited hunk that cannot be read; nothing is recorded then.
    """
    artifacts = lifted_with(work, standing(work, decisions))
    bodies: list[Body] = [HunkDecided(d) for d in decisions]
    bodies += [ArtifactSet(a.stage, a.name, a.sha256) for a in artifacts]
    work.writer.append(bodies, [a.data for a in artifacts], actor=work.actor)


def lifted_with(work: Work, known: Mapping[str, Meaning]) -> list[Artifact]:
    """The artifacts of the lifted stage where these meanings stand."""
    meanings = tuple(known.values())
    try:
        lifted = with_meanings(work.bare, meanings)
    except CuBridgeError as error:
        raise InputError(str(error)) from None
    artifacts = [Artifact.of(Stage.LIFTED, LIFTED, print_module(lifted.module))]
    if meanings or MEANINGS in work.state.stage(Stage.LIFTED).artifacts:
        artifacts.append(Artifact.of(Stage.LIFTED, MEANINGS, meanings_json(meanings)))
    return artifacts


def proposal_of(
    step: Step, number: int, task: LiftTask, meanings: Sequence[Meaning], reason: str,
    origin: Origin = Origin.MODEL, transcript: str | None = None,
) -> Proposal:  # fmt: skip
    """A step's meanings as a proposal: one hunk per op."""
    hunks = []
    for said in meanings:
        before = task.op(said.op).text
        if step is Step.BIND:
            before = part_text(Step.ANNOTATE, task.known[said.op])
        title = {
            Step.ANNOTATE: f"Say what {said.op} does",
            Step.BIND: f"Say who executes {said.op}",
            Step.TRANSLATE: f"Write {said.op} in CuIR",
        }[step]
        hunks.append(
            Hunk(
                said.op, title, said.does or reason, step.value, before, part_text(step, said),
                (said.op,), origin,
            )
        )  # fmt: skip
    name = f"{ABOUT_MEANINGS}{number}-{step.value}"
    return Proposal(name, origin, reason, tuple(hunks), transcript)
