"""Meanings for opaque ops from a model, in a session: three steps, each a proposal of its own.

What is sent here includes CUDA text: the opaque ops, and what the source's headers define of the
names in them. It is shown before it goes, as always.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cuir.printer import print_module
from engine.cuir.static.check import check
from engine.errors import CuBridgeError, InputError
from engine.lift.files.meanings import Meaning, with_meanings
from engine.llm.types import Message
from engine.service.models.llm_conversation import (
    Conversation,
    Outgoing,
    Part,
    Result,
    manual,
    size_of,
)
from engine.service.session.meanings import lift_task, proposal_of, standing, step_of
from engine.transfer.llm.answer import AnswerError, AnswerRefused, reason_of
from engine.transfer.llm.editing import statement_text
from engine.transfer.llm.lifting import LiftTask, Step, lift_messages, open_ops, read_step
from engine.transfer.llm.outcome import Outcome, Reached
from engine.types import VerdictKind, sha256_of
from sessions.events import ProposalMade

Said = tuple[Meaning, ...]


@dataclass(slots=True)
class ModelLift(Conversation[Said]):
    """The model's part in the lift of one session."""

    def first_prompt(self, step: Step, instruction: str = "") -> tuple[Message, ...]:
        """The prompt as it would be sent: to read, to edit, and to give to `run`."""
        task = lift_task(self.work, standing(self.work), instruction)
        return lift_messages(step, task, manual())

    def outgoing(self, prompt: Sequence[Message], requests: int) -> Outgoing:
        """What the first request carries, by part."""
        task = lift_task(self.work, {})
        whole = size_of(prompt)
        cuir = len(print_module(task.module).encode())
        rules = size_of(prompt[:1])
        parts = (
            Part("instructions and the CuIR manual", rules),
            Part(f"{task.kernel} as CuIR, {len(task.asked)} ops of it as CUDA text", cuir),
            Part("definitions from the source's headers, ids, the question", whole - cuir - rules),
        )
        return self.sending(parts, requests)

    def run(
        self, step: Step, rounds: int, instruction: str = "",
        prompt: Sequence[Message] | None = None,
    ) -> Result[Said]:  # fmt: skip
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
        outgoing = self.outgoing(start, (rounds + 1) * len(Step))
        number = 1 + sum(step_of(p) is step for p in work.state.proposals)
        name = f"meaning-{number}-{step.value}"
        done = self.hold(name, outgoing, start, rounds, lambda text: self._judge(step, text, task))
        last = done[-1]
        if not last.passed or last.outcome.value is None:
            return Result(done, None)
        proposal = proposal_of(
            step, number, task, last.outcome.value, reason_of(last.reply.text),
            transcript=sha256_of(last.transcript()),
        )  # fmt: skip
        work.writer.append([ProposalMade(proposal)], actor=self.actor)
        return Result(done, proposal)

    def _judge(self, step: Step, text: str, task: LiftTask) -> Outcome[Said]:
        try:
            said = read_step(step, text, task)
        except AnswerRefused as error:
            return Outcome(Reached.REFUSED, error.message, stage="It was refused:")
        except AnswerError as error:
            return Outcome(Reached.UNREADABLE, error.message, stage="It could not be read:")
        if step is not Step.TRANSLATE:
            return Outcome(Reached.PASSED, f"{len(said)} ops", value=said)
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
                stage = "The checks of the module find:"
                return Outcome(Reached.UNSOUND, reason, op, stage=stage, shown=op, value=said)
            verdict = self.work.weigh_lifted(lifted)
        except CuBridgeError as error:
            stage = "The module with these meanings cannot run:"
            return Outcome(Reached.UNSOUND, str(error), stage=stage, value=said)
        if verdict.stops:
            stage = "With these meanings the kernel does not compute its own reference (gate G1):"
            return Outcome(
                Reached.G1, verdict.reason, details=verdict.details, stage=stage, value=said
            )
        reason = verdict.reason if verdict.kind is VerdictKind.NOT_RUN else f"G1: {verdict.reason}"
        return Outcome(Reached.PASSED, reason, value=said)
