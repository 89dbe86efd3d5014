"""A lowering from a model, in a session: asked for where the templates cannot write the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import CuBridgeError, InputError
from engine.llm.types import Message
from engine.service.models.llm_conversation import (
    Conversation,
    Outgoing,
    Part,
    Result,
    manual,
    size_of,
)
from engine.service.models.llm_gates import compilers_words
from engine.service.session.adaptation import Adaptation
from engine.service.session.content import LOWERED
from engine.service.session.lowerings import (
    lower_task,
    lowering_proposal,
    subject_name,
    subject_text,
    written_lowering,
)
from engine.service.session.proposal_kinds import ABOUT_LOWERINGS
from engine.transfer.llm.answer import AnswerError, AnswerRefused, reason_of
from engine.transfer.llm.lowering import LowerTask, lower_messages, lowered_source, read_regions
from engine.transfer.llm.outcome import Outcome, Reached
from engine.types import (
    TOO_SLOW,
    Artifact,
    Decision,
    DecisionKind,
    Proposal,
    Stage,
    VerdictKind,
    sha256_of,
)
from sessions.events import ArtifactSet, HunkDecided, ProposalMade, TranscriptAdded

Texts = dict[str, str]


@dataclass(slots=True)
class ModelLower(Conversation[Texts]):
    """The model's part in the lowering of one session. The target must stand."""

    def first_prompt(self, why: str, instruction: str = "") -> tuple[Message, ...]:
        """The prompt as it would be sent: to read, to edit, and to give to `run`."""
        return lower_messages(lower_task(self.work, why, instruction), manual())

    def outgoing(self, prompt: Sequence[Message], requests: int) -> Outgoing:
        """What the first request carries, by part."""
        parts = (
            Part("instructions, C++ spellings and the CuIR manual", size_of(prompt[:1])),
            Part(
                f"the CUDA source of {self.work.package.name} without comments, and the accepted "
                "change in CuIR",
                size_of(prompt[1:]),
            ),
        )
        return self.sending(parts, requests)

    def run(
        self, why: str, rounds: int, instruction: str = "",
        prompt: Sequence[Message] | None = None,
    ) -> Result[Texts]:  # fmt: skip
        """Ask for a lowering; every trial is kept, and the one that passes G3 becomes a proposal.

        `why` is what the templates said. Raises:
            LlmError: the server gave no answer; what came before is recorded.
            InputError: the person did not agree, or the target is the lifted module itself.
        """
        work = self.work
        task = lower_task(work, why, instruction)
        if not task.regions:
            raise InputError(
                "the target changes nothing of the source", fix="accept a hunk of the target first"
            )
        start = tuple(prompt) if prompt else lower_messages(task, manual())
        outgoing = self.outgoing(start, rounds + 1)
        number = 1 + sum(p.id.startswith(ABOUT_LOWERINGS) for p in work.state.proposals)
        name = f"{ABOUT_LOWERINGS}{number}"
        done = self.hold(name, outgoing, start, rounds, lambda text: self._judge(text, task))
        last = done[-1]
        if not last.passed or last.outcome.value is None:
            return Result(done, None)
        proposal = lowering_proposal(
            task, name, last.outcome.value, reason_of(last.reply.text),
            transcript=sha256_of(last.transcript()),
        )  # fmt: skip
        subject = subject_text(work)
        added = TranscriptAdded(subject_name(name), sha256_of(subject), name)
        work.writer.append([added, ProposalMade(proposal)], [subject.encode()], actor=self.actor)
        return Result(done, proposal)

    def _judge(self, text: str, task: LowerTask) -> Outcome[Texts]:
        try:
            texts = read_regions(text, task)
        except AnswerRefused as error:
            return Outcome(Reached.REFUSED, error.message, stage="It was refused:")
        except AnswerError as error:
            return Outcome(Reached.UNREADABLE, error.message, stage="It could not be applied:")
        source = lowered_source(texts, task)
        try:
            work = self.work
            found = work.judge_source(work.target, source, work.recipe, work.binding)
        except CuBridgeError as error:
            return Outcome(Reached.G3, str(error), stage="Gate G3 found:", value=texts)
        # No other text makes the target faster: a person may take it as overridden.
        if found.kind is VerdictKind.FAIL and not found.details.get(TOO_SLOW):
            said = compilers_words(self.work, found, source, self.work.target, {})
            return Outcome(
                Reached.G3, found.reason, stage="Gate G3 found:", found=said, value=texts
            )
        return Outcome(Reached.PASSED, f"G3: {found.reason}", value=texts)


def decide_lowering(work: Adaptation, *decisions: Decision) -> None:
    """Record decisions on hunks of written lowerings; the lowered source is made again.

    Where none of it stands any more, there is no lowered source until the target is lowered again.
    """
    stood = written_lowering(work) is not None
    lowering = written_lowering(work, decisions)
    bodies: list[HunkDecided | ArtifactSet] = [HunkDecided(d) for d in decisions]
    blobs: list[bytes] = []
    if lowering is not None:
        artifact = Artifact.of(Stage.LOWERED, LOWERED, lowering.source)
        bodies.append(ArtifactSet(artifact.stage, artifact.name, artifact.sha256))
        blobs.append(artifact.data)
    else:  # what the templates wrote stays; one stroke of decisions ends with its text in the log
        kept = None if stood or work.state.outdated(Stage.LOWERED) else _lowered_hash(work)
        bodies.append(ArtifactSet(Stage.LOWERED, LOWERED, kept))
    work.writer.append(bodies, blobs, actor=work.actor)


def _lowered_hash(work: Adaptation) -> str | None:
    return work.state.stage(Stage.LOWERED).artifacts.get(LOWERED)


def accept_lowering(work: Adaptation, proposal: Proposal) -> None:
    """Accept every hunk of a written lowering."""
    decide_lowering(work, Decision(proposal.id, DecisionKind.ACCEPTED, work.actor))
