"""A person's own proposal: the whole target as they wrote it, as hunks like any other's."""

from __future__ import annotations

from engine.cuir.changes.ids import assign
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import InputError
from engine.service.session.adaptation import Adaptation
from engine.service.session.content import TARGET
from engine.transfer.proposals.review import propose
from engine.types import Artifact, Origin, Proposal, Stage, sha256_of
from sessions.events import ArtifactSet, ProposalMade, TranscriptAdded


def propose_by_person(work: Adaptation, text: str) -> Proposal:
    """Propose `text` (a whole CuIR module) in place of the present target; nothing is decided yet.

    Raises:
        CuirError: the text does not parse.
        InputError: it is the target as it is, or another specialisation.
    """
    base = work.decided(work.edits)
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
