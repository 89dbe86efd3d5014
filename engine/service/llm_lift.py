"""Meanings for opaque ops from a model, in a session: three steps, each a proposal of its own.

What is sent here includes CUDA text: the opaque ops, and what the source's headers define of the
names in them. It is shown before it goes, as always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.cuir.check import check
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, InputError
from engine.lift.meanings import Meaning, with_meanings
from engine.llm.types import Client, Ending, Listen, Message, Parameters, deaf
from engine.service.adaptation import Adaptation
from engine.service.llm_sending import Consent, Outgoing, Part, actor_name, agree, manual
from engine.service.llm_trials import asker, kept, passed
from engine.service.meanings import lift_task, proposal_of, standing, step_of
from engine.transfer.llm.answer import AnswerError, AnswerRefused, reason_of
from engine.transfer.llm.lifting import LiftTask, Step, lift_messages, open_ops, read_step
from engine.transfer.llm.loop import statement_text
from engine.transfer.llm.rounds import (
    PASSED,
    REFUSED,
    UNREADABLE,
    UNSOUND,
    Outcome,
    Trial,
    trials,
)
from engine.types import Proposal, VerdictKind, sha256_of
from sessions.events import ProposalMade

Said = tuple[Meaning, ...]
LiftTrial = Trial[Said]
G1 = "g1"  # how far a trial got whose meanings ran and were wrong


@dataclass(frozen=True, slots=True)
class LiftResult:
    """What one step came to."""

    step: Step
    trials: tuple[LiftTrial, ...]
    proposal: Proposal | None

    @property
    def cancelled(self) -> bool:
        return any(t.reply.ending is Ending.CANCELLED for t in self.trials)


@dataclass(slots=True)
class ModelLift:
    """The model's part in the lift of one session."""

    work: Adaptation
    client: Client
    model: str
    consent: Consent
    parameters: Parameters = field(default_factory=Parameters)
    listen: Listen = deaf
    steer: Callable[[LiftTrial], str | None] = lambda _: ""
    on_trial: Callable[[Step, LiftTrial], None] = lambda _, __: None
    _agreed: bool = False

    def next_step(self) -> Step | None:
        """The first step that still has ops to say something of; None when all is said."""
        known = standing(self.work)
        task = lift_task(self.work, known)
        for step in Step:
            if any(not _has(step, known.get(id)) for id in open_ops(step, task)):
                return step
        return None

    def first_prompt(self, step: Step, instruction: str = "") -> tuple[Message, ...]:
        """The prompt as it would be sent: to read, to edit, and to give to `run`."""
        task = lift_task(self.work, standing(self.work), instruction)
        return lift_messages(step, task, manual())

    def outgoing(self, prompt: Sequence[Message], requests: int) -> Outgoing:
        """What the first request carries, by part."""
        task = lift_task(self.work, {})
        whole = sum(len(m.text.encode("utf-8", "replace")) for m in prompt)
        cuir = len(print_module(task.module).encode())
        rules = len(prompt[0].text.encode("utf-8", "replace"))
        parts = (
            Part("instructions and the CuIR manual", rules),
            Part(f"{task.kernel} as CuIR, {len(task.asked)} ops of it as CUDA text", cuir),
            Part("definitions from the source's headers, ids, the question", whole - cuir - rules),
        )
        return Outgoing(self.client.place, self.model, parts, requests, self.client.manner)

    def run(
        self, step: Step, rounds: int, instruction: str = "",
        prompt: Sequence[Message] | None = None,
    ) -> LiftResult:  # fmt: skip
        """Ask for one step; every trial is kept, and the one that passes becomes a proposal.

        Raises:
            LlmError: the server gave no answer; what came before is recorded.
            InputError: the person did not agree, or there is nothing to ask for.
        """
        work = self.work
        task = lift_task(work, standing(work), instruction)
        if not open_ops(step, task):
            raise InputError(
                f"there is no op to ask for in the step `{step}`",
                fix="accept what the step before proposed, or lift a source with opaque ops",
            )
        start = tuple(prompt) if prompt else lift_messages(step, task, manual())
        if not self._agreed:
            agree(self.consent, self.outgoing(start, (rounds + 1) * len(Step)))
            self._agreed = True
        number = 1 + sum(step_of(p) is step for p in work.state.proposals)
        name = f"meaning-{number}-{step.value}"
        found = trials(
            self.model, self.parameters, start, rounds, asker(work, self.client, self.listen),
            lambda text: self._judge(step, text, task), self.steer,
        )  # fmt: skip
        done = kept(work, self.model, name, found, lambda trial: self.on_trial(step, trial))
        said = passed(done)
        if said is None:
            return LiftResult(step, done, None)
        last = done[-1]
        proposal = proposal_of(
            step, number, task, said, reason_of(last.reply.text),
            transcript=sha256_of(last.transcript()),
        )  # fmt: skip
        work.writer.append([ProposalMade(proposal)], actor=actor_name(self.model))
        return LiftResult(step, done, proposal)

    def _judge(self, step: Step, text: str, task: LiftTask) -> Outcome[Said]:
        try:
            said = read_step(step, text, task)
        except AnswerRefused as error:
            return Outcome(REFUSED, error.message, "It was refused:")
        except AnswerError as error:
            return Outcome(UNREADABLE, error.message, "It could not be read:")
        if step is not Step.TRANSLATE:
            return Outcome(PASSED, f"{len(said)} ops", value=said)
        return self._weigh(said, task)

    def _weigh(self, said: Said, task: LiftTask) -> Outcome[Said]:
        """The meanings run: checks first, then G1 where nothing is opaque any more."""
        known = dict(task.known) | {m.op: m for m in said}
        try:
            lifted = with_meanings(self.work.bare, tuple(known.values()))
            found = check(lifted.module)
            if found:
                op = statement_text(lifted.module, found[0].path)
                reason = f"{found[0].kind}: {found[0].message}"
                return Outcome(UNSOUND, reason, "The checks of the module find:", said, op)
            verdict = self.work.weigh_lifted(lifted)
        except CuBridgeError as error:
            return Outcome(UNSOUND, str(error), "The module with these meanings cannot run:", said)
        if verdict.stops:
            stage = "With these meanings the kernel does not compute its own reference (gate G1):"
            return Outcome(G1, verdict.reason, stage, said, details=verdict.details)
        reason = verdict.reason if verdict.kind is VerdictKind.NOT_RUN else f"G1: {verdict.reason}"
        return Outcome(PASSED, reason, value=said)


def _has(step: Step, said: Meaning | None) -> bool:
    if said is None:
        return False
    return bool({Step.ANNOTATE: said.does, Step.BIND: said.by, Step.TRANSLATE: said.body}[step])
