"""A session's model on the app's desk: what would be sent, the run, and what is heard meanwhile.

`prepare` and `run` block and are called on the jobs' thread; what is heard while they do reaches
the screen through `model.live`. The three things that a model can be asked for differ in who makes
the prompt and who runs; consent, stream, steering and records are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cubridge_tui.desk import Desk
from cubridge_tui.model.attempts import Answered, Said
from cubridge_tui.model.live import Asking, Live
from cubridge_tui.model.meanings import about_meanings
from cubridge_tui.model.topics import Topic
from cubridge_tui.model.written import decided_regions
from engine.llm.client import ServerClient
from engine.llm.settings import Prices, Settings, load_settings
from engine.llm.types import Message
from engine.service.models.llm import ModelTransfer, Wish
from engine.service.models.llm_conversation import Outgoing
from engine.service.models.llm_conversation import Result as EditResult
from engine.service.models.llm_lift import ModelLift
from engine.service.models.llm_lower import ModelLower
from engine.service.session.lowerings import lower_task
from engine.service.session.meanings import lift_task, standing
from engine.transfer.llm.editing import Edit
from engine.transfer.llm.lifting import Step, part_text
from engine.transfer.llm.loop import Attempt
from engine.transfer.llm.prompt import Comment
from engine.types import Decision, DecisionKind, Gate, Hunk, Proposal

SENT_BACK = "sent back to the model"


@dataclass(frozen=True, slots=True)
class Ready:
    """What would be sent, to be seen before it is.

    `comments` are the person's, on hunks that were not taken; `rest` are undecided hunks, which
    are rejected when the rest is sent back.
    """

    asking: Asking
    topic: Topic
    settings: Settings
    outgoing: Outgoing
    prompt: tuple[Message, ...]
    comments: tuple[Comment, ...]
    rest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to: a proposal to decide on, where an answer was good enough for one."""

    topic: Topic
    proposal: Proposal | None
    passed: bool
    edit: EditResult[Edit] | None = None


def prepare(desk: Desk, asking: Asking, topic: Topic) -> Ready:
    """Make the prompt and say what sending it means; nothing leaves this machine.

    Raises:
        InputError: no model or key is configured, or the spec cannot be read.
    """
    settings = load_settings(asking.url or None, asking.model or None)
    comments, rest = _left(desk, topic)
    requests = asking.rounds + 1
    words = _words(asking, comments)
    match topic:
        case Topic.EDIT:
            transfer = _transfer(desk, settings)
            task, _ = transfer.prepare(Wish(asking.instruction, comments, answers=requests))
            prompt = asking.prompt or transfer.first_prompt(task)
            outgoing = transfer.outgoing(task, asking.candidates * requests, prompt)
        case Topic.LOWER:
            lower = _lower(desk, settings)
            prompt = asking.prompt or lower.first_prompt(_why(desk), words)
            outgoing = lower.outgoing(prompt, requests)
        case _:
            lift = _lift(desk, settings)
            prompt = asking.prompt or lift.first_prompt(Step(topic.value), words)
            outgoing = lift.outgoing(prompt, requests)
    return Ready(asking, topic, settings, outgoing, tuple(prompt), comments, rest)


def run(desk: Desk, ready: Ready, live: Live) -> Result:
    """Ask as agreed: to the place and with the bytes that were shown, or not at all."""
    if ready.rest:
        desk.record(
            *(Decision(n, DecisionKind.REJECTED, desk.actor, SENT_BACK) for n in ready.rest)
        )
    asking, shown = ready.asking, ready.outgoing
    words = _words(asking, ready.comments)

    def agreed(now: Outgoing) -> bool:  # another byte or place was not agreed to
        return replace(now, requests=shown.requests) == shown

    match ready.topic:
        case Topic.EDIT:
            transfer = _transfer(desk, ready.settings)
            transfer.consent, transfer.listen = agreed, live.heard
            transfer.on_attempt = lambda a: live.attempted(Answered.of_edit(a))
            transfer.steer = lambda a: live.steer(Answered.of_edit(a))
            wish = Wish(asking.instruction, ready.comments)
            edit = transfer.run(asking.rounds, asking.candidates, wish, ready.prompt)
            return Result(ready.topic, edit.proposal, edit.passed, edit)
        case Topic.LOWER:
            lower = _lower(desk, ready.settings)
            lower.consent, lower.listen = agreed, live.heard
            lower.on_attempt = lambda a: live.attempted(_lowering(desk, a))
            lower.steer = lambda a: live.steer(_lowering(desk, a))
            made = lower.run(_why(desk), asking.rounds, words, ready.prompt).proposal
        case _:
            step = Step(ready.topic.value)
            lift = _lift(desk, ready.settings)
            lift.consent, lift.listen = agreed, live.heard
            lift.on_attempt = lambda a: live.attempted(_meaning(desk, step, a))
            lift.steer = lambda a: live.steer(_meaning(desk, step, a))
            made = lift.run(step, asking.rounds, words, ready.prompt).proposal
    return Result(ready.topic, made, made is not None)


def cost(result: Result, prices: Prices | None) -> str:
    """Tokens, and money where the person's config names prices."""
    return result.edit.cost(prices) if result.edit is not None else ""


def _transfer(desk: Desk, settings: Settings) -> ModelTransfer:
    client = ServerClient(settings)
    return ModelTransfer(desk.work, client, settings.model, lambda _: False, settings.parameters)


def _lift(desk: Desk, settings: Settings) -> ModelLift:
    client = ServerClient(settings)
    return ModelLift(desk.work, client, settings.model, lambda _: False, settings.parameters)


def _lower(desk: Desk, settings: Settings) -> ModelLower:
    client = ServerClient(settings)
    return ModelLower(desk.work, client, settings.model, lambda _: False, settings.parameters)


def _why(desk: Desk) -> str:
    """What the templates said, or what G3 found."""
    verdict = desk.work.state.verdict(Gate.G3)
    return verdict.reason if verdict is not None else "the person asks for it"


def _meaning(desk: Desk, step: Step, attempt: Attempt[Any]) -> Answered:
    said = attempt.outcome.value or ()
    task = lift_task(desk.work, standing(desk.work))
    parts = [Said(m.op, task.op(m.op).text, part_text(step, m)) for m in said]
    return Answered.of_parts(f"{step.value[0]}r", attempt, parts, "cuir")


def _lowering(desk: Desk, attempt: Attempt[Any]) -> Answered:
    texts = attempt.outcome.value or {}
    task = lower_task(desk.work)
    parts = [Said(r.name, task.text(r), texts[r.name]) for r in task.regions if r.name in texts]
    return Answered.of_parts("lr", attempt, parts, "cuda")


def _words(asking: Asking, comments: Sequence[Comment]) -> str:
    """The person's line, and their comments on what they did not take."""
    said = [f"On {c.hunk}, which was not taken: {c.text}" for c in comments]
    return "\n".join([asking.instruction, *said] if asking.instruction else said)


def _hunks(desk: Desk, topic: Topic) -> tuple[tuple[Proposal, Hunk, Decision | None], ...]:
    match topic:
        case Topic.EDIT:
            return desk.work.hunks()
        case Topic.LOWER:
            return decided_regions(desk.work.state)
    return about_meanings(desk.work.state)


def _left(desk: Desk, topic: Topic) -> tuple[tuple[Comment, ...], tuple[str, ...]]:
    """Comments on hunks that were not taken, and the hunks that nobody decided on."""
    comments: list[Comment] = []
    rest: list[str] = []
    for proposal, hunk, decision in _hunks(desk, topic):
        name = f"{proposal.id}/{hunk.id}"
        if decision is None:
            rest.append(name)
        elif decision.kind is not DecisionKind.REJECTED:
            continue
        said = desk.work.state.comment(proposal.id, hunk.id)
        if said is not None and said.text != SENT_BACK:
            comments.append(Comment(f"{name} ({hunk.title})", said.text))
    return tuple(comments), tuple(rest)


def edited(prompt: Sequence[Message], text: str) -> tuple[Message, ...]:
    """A prompt with another last message: what the person may change of it."""
    last = prompt[-1]
    return (*prompt[:-1], Message(last.role, text))
