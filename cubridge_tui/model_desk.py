"""A session's model on the app's desk: what would be sent, the run, and what is heard meanwhile.

`prepare` and `run` block and are called on the jobs' thread; what is heard while they do reaches
the screen through `model.live`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cubridge_tui.desk import Desk
from cubridge_tui.model.live import Asking, Live
from engine.llm.client import ServerClient
from engine.llm.settings import Prices, Settings, load_settings
from engine.llm.types import Message
from engine.service.llm import ModelTransfer, Outgoing, Result, Wish
from engine.transfer.llm.prompt import Comment
from engine.types import Decision, DecisionKind

SENT_BACK = "sent back to the model"


@dataclass(frozen=True, slots=True)
class Ready:
    """What would be sent, to be seen before it is.

    `comments` are the person's, on hunks that were not taken; `rest` are undecided hunks, which
    are rejected when the rest is sent back.
    """

    asking: Asking
    settings: Settings
    outgoing: Outgoing
    prompt: tuple[Message, ...]
    comments: tuple[Comment, ...]
    rest: tuple[str, ...]


def prepare(desk: Desk, asking: Asking) -> Ready:
    """Make the prompt and say what sending it means; nothing leaves this machine.

    Raises:
        InputError: no model or key is configured, or the spec cannot be read.
    """
    settings = load_settings(asking.url or None, asking.model or None)
    comments, rest = _left(desk)
    transfer = _transfer(desk, settings)
    task, _ = transfer.prepare(Wish(asking.instruction, comments))
    prompt = asking.prompt or transfer.first_prompt(task)
    requests = asking.candidates * (asking.rounds + 1)
    outgoing = transfer.outgoing(task, requests, prompt)
    return Ready(asking, settings, outgoing, tuple(prompt), comments, rest)


def run(desk: Desk, ready: Ready, live: Live) -> Result:
    """Ask as agreed: to the place and with the bytes that were shown, or not at all."""
    if ready.rest:
        desk.work.decide(
            *(Decision(n, DecisionKind.REJECTED, desk.actor, SENT_BACK) for n in ready.rest)
        )
    transfer = _transfer(desk, ready.settings)
    shown = ready.outgoing
    transfer.consent = lambda now: now == shown  # another byte or place was not agreed to
    transfer.listen, transfer.on_attempt = live.heard, live.attempted
    transfer.steer = live.steer
    asking = ready.asking
    wish = Wish(asking.instruction, ready.comments)
    return transfer.run(asking.rounds, asking.candidates, wish, ready.prompt)


def cost(result: Result, prices: Prices | None) -> str:
    """Tokens, and money where the person's config names prices."""
    return result.cost(prices)


def _transfer(desk: Desk, settings: Settings) -> ModelTransfer:
    client = ServerClient(settings)
    return ModelTransfer(desk.work, client, settings.model, lambda _: False, settings.parameters)


def _left(desk: Desk) -> tuple[tuple[Comment, ...], tuple[str, ...]]:
    """Comments on hunks that were rejected, and the hunks that nobody decided on."""
    comments: list[Comment] = []
    rest: list[str] = []
    for proposal, hunk, decision in desk.work.hunks():
        name = f"{proposal.id}/{hunk.id}"
        if decision is None:
            rest.append(name)
        elif decision.kind is DecisionKind.REJECTED and decision.comment not in ("", SENT_BACK):
            comments.append(Comment(f"{name} ({hunk.title})", decision.comment))
    return tuple(comments), tuple(rest)


def edited(prompt: Sequence[Message], text: str) -> tuple[Message, ...]:
    """A prompt with another last message: what the person may change of it."""
    last = prompt[-1]
    return (*prompt[:-1], Message(last.role, text))
