"""What a person writes: the whole target, as hunks like any other's; and a meaning, all three steps
in one text.

A meaning becomes the same three proposals that a model's steps become, with the person as their
origin, and is accepted at one stroke: who writes it has decided on it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from engine.cuir.changes.ids import assign
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.cuir.static.check import check
from engine.errors import CuirError, InputError
from engine.lift.files.meanings import Meaning, with_meanings
from engine.lower.spelling.free_hand import spelled
from engine.service.session.adaptation import Adaptation
from engine.service.session.content import TARGET
from engine.service.session.meanings import (
    decide_meanings,
    lift_task,
    proposal_of,
    standing,
    step_of,
)
from engine.transfer.llm.answer import AnswerError
from engine.transfer.llm.lifting import LiftTask, Step, part_text, read_part
from engine.transfer.proposals.review import propose
from engine.types import Artifact, Decision, DecisionKind, Origin, Proposal, Stage, sha256_of
from sessions.events import ArtifactSet, ProposalMade, TranscriptAdded


def propose_by_person(work: Adaptation, text: str) -> Proposal:
    """Propose `text` (a whole CuIR module) in place of the present target; nothing is decided yet.

    Raises:
        CuirError: the text does not parse.
        InputError: it is the target as it is, or another specialisation.
    """
    base = work.decided(work.edits)
    proposed = spelled(parse_module(text, TARGET))
    if proposed.spec != base.spec:
        raise InputError("the first line names another specialisation", fix="leave it as it is")
    number = sum(p.origin is Origin.PERSON for p in work.state.proposals) + 1
    proposal = propose(
        base, proposed, id=f"person-{number}", origin=Origin.PERSON,
        reason=f"written by {work.actor}", ids=assign(base),
    )  # fmt: skip
    if not proposal.hunks:
        raise InputError("this is the target as it is: there is nothing to propose")
    whole = print_module(proposed)
    kept = TranscriptAdded(f"{proposal.id}.proposed.cuir", sha256_of(whole), proposal.id)
    target = Artifact.of(Stage.TARGET, TARGET, work.text(Stage.TARGET, TARGET))
    made = ArtifactSet(target.stage, target.name, target.sha256)
    work.writer.append([kept, ProposalMade(proposal), made], [whole.encode()], actor=work.actor)
    return proposal


_HEAD = re.compile(r"^\s*(does|reads|writes|by)\s*:")
_EVERYBODY = "host, thread, part, unit, block, any"


def written_text(work: Adaptation, op: str) -> str:
    """The text to begin with: what stands, else the names that the op's own text shows."""
    task = lift_task(work, {})
    said = standing(work).get(op)
    if said is None:
        opaque = task.op(op)
        said = Meaning(op, opaque.text, reads=opaque.reads, writes=opaque.writes)
        said = replace(said, reads=_named(said.reads), writes=_named(said.writes))
    by = ", ".join(said.by) or "part"
    body = part_text(Step.TRANSLATE, said) if said.body else ""
    return f"{part_text(Step.ANNOTATE, said)}\nby: {by}\n\n{body}\n"


def _named(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(n for n in names if n != "*")


def write_meaning(work: Adaptation, op: str, text: str) -> None:
    """Propose and accept a meaning: lines `does:`, `reads:`, `writes:`, `by:`, then CuIR.

    Raises:
        InputError: a text that cannot be read or checked; nothing is recorded then.
    """
    task = lift_task(work, dict(standing(work)))
    heads, body = _parted(text)
    try:
        for step, part in (
            (Step.ANNOTATE, "\n".join(h for h in heads if not h.lstrip().startswith("by"))),
            (Step.BIND, "\n".join(h for h in heads if h.lstrip().startswith("by"))),
            (Step.TRANSLATE, body),
        ):
            said = read_part(step, op, part, task)
            if said is None:
                raise AnswerError(f"{op}: a meaning says something; leave the op opaque otherwise")
            task = replace(task, known=dict(task.known) | {op: said})
    except AnswerError as error:
        fix = f"does:, reads:, writes:, by: ({_EVERYBODY}), then CuIR statements or pass"
        raise InputError(error.message, fix=fix) from None
    meaning = task.known[op]
    _checked(work, task)
    bodies = []
    for step in Step:
        number = 1 + sum(step_of(p) is step for p in work.state.proposals)
        made = proposal_of(step, number, task, (meaning,), "written by hand", Origin.PERSON)
        bodies.append(ProposalMade(made))
    work.writer.append(bodies, actor=work.actor)
    names = [f"{b.proposal.id}/{op}" for b in bodies]
    decide_meanings(work, *(Decision(n, DecisionKind.ACCEPTED, work.actor) for n in names))


def _parted(text: str) -> tuple[list[str], str]:
    """The lines that say what the op does and who executes it, and the statements after them."""
    lines = text.split("\n")
    last = max((i for i, line in enumerate(lines) if _HEAD.match(line)), default=-1)
    return [x for x in lines[: last + 1] if x.strip()], "\n".join(lines[last + 1 :]).strip("\n")


def _checked(work: Adaptation, task: LiftTask) -> None:
    """The module with this meaning in it passes the checks that need no run."""
    try:
        found = check(with_meanings(work.bare, tuple(task.known.values())).module)
    except CuirError as error:
        raise InputError(str(error), fix="mend the statements") from None
    if found:
        reason = f"{found[0].kind}: {found[0].message}"
        raise InputError(f"with this meaning the checks of the module find {reason}")
