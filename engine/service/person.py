"""A person's own proposal: the whole target as they wrote it, as hunks like any other's."""

from __future__ import annotations

from engine.cuir.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import InputError
from engine.service.adaptation import Adaptation
from engine.service.content import TARGET
from engine.service.work import Work
from engine.transfer.review import compose, propose
from engine.types import Artifact, Origin, Proposal, Stage, sha256_of
from sessions.events import ArtifactSet, ProposalMade, TranscriptAdded


def decided_base(work: Work) -> Module:
    """What the next proposal is made against: the lifted module with every standing decision."""
    module = work.lifted.module
    for proposal in work.edits:
        decisions = {
            h.id: d
            for h in proposal.hunks
            if (d := work.state.decision(proposal.id, h.id)) is not None
        }
        proposed = parse_module(work.proposed_text(proposal), f"{proposal.id}.cuir")
        module = compose(module, proposed, proposal, decisions)
    return module


def propose_by_person(work: Adaptation, text: str) -> Proposal:
    """Propose `text` (a whole CuIR module) in place of the present target; nothing is decided yet.

    Raises:
        CuirError: the text does not parse.
        InputError: it is the target as it is, or another specialisation.
    """
    base = decided_base(work)
    proposed = parse_module(text, TARGET)
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
