"""A session's model: what is sent where, the loop over the gates, and what the session keeps of it.

Nothing leaves the machine before `consent` has been given what goes and where. Every attempt is
kept as a transcript, failed ones with their verdict; the best one becomes a proposal like any
other, whose hunks a person decides on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from engine.child.client import ChildFailed
from engine.cuir.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.errors import SpecError
from engine.llm.settings import Prices
from engine.llm.types import (
    Client,
    Ending,
    Listen,
    Message,
    Parameters,
    Usage,
    deaf,
)
from engine.service.adaptation import Adaptation, pretty_json
from engine.service.content import BINDING, RECIPE, TARGET
from engine.service.llm_examples import accepted_example, offered_examples
from engine.service.llm_gates import ModelGates
from engine.service.llm_sending import Consent, Outgoing, Part, actor_name, agree, manual
from engine.service.llm_trials import asker, noted
from engine.service.work import Work
from engine.spec.python.declarations import declared
from engine.spec.python.spec_file import read_source
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.llm.bind import Interface
from engine.transfer.llm.loop import (
    Attempt,
    Plan,
    Steer,
    best,
    no_words,
    run,
    tokens,
)
from engine.transfer.llm.prompt import (
    Comment,
    Example,
    Task,
    code_alone,
    example_text,
    first_messages,
)
from engine.transfer.review import propose
from engine.types import (
    Artifact,
    Gate,
    Origin,
    Proposal,
    Stage,
    sha256_of,
)
from sessions.events import ArtifactSet, Body, ProposalMade, TranscriptAdded

Events = tuple[list[Body], list[bytes]]  # what happened, and the contents that it names


@dataclass(frozen=True, slots=True)
class Result:
    """What a run of the model came to."""

    attempts: tuple[Attempt, ...]
    best: Attempt | None
    proposal: Proposal | None
    cancelled: bool = False

    @property
    def passed(self) -> bool:
        return self.best is not None and self.best.passed

    @property
    def usage(self) -> Usage:
        return tokens(self.attempts)

    def cost(self, prices: Prices | None) -> str:
        """Tokens, and money where the person's own config names prices."""
        used = self.usage
        if used.prompt is None and used.answer is None:
            return "the server counted no tokens"
        text = f"{used.prompt or 0} tokens sent, {used.answer or 0} received"
        if prices is None:
            return text
        money = ((used.prompt or 0) * prices.prompt + (used.answer or 0) * prices.answer) / 1e6
        return f"{text}, {money:.4f} {prices.currency}"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person adds to a run."""

    instruction: str = ""
    comments: tuple[Comment, ...] = ()
    examples: tuple[Example, ...] = ()


def task_of(work: Work, wish: Wish | None = None) -> tuple[Task, Recipe | None]:
    """What an edit is asked for: the base that the standing decisions give, and the spec."""
    wish = wish or Wish()
    work.bench.progress("reading the spec")
    source = read_source(work.spec, dict(work.options.spec))
    found = declared(source)
    recipe, unread = None, ""
    try:
        recipe = work.read_recipe(work.spec, work.options.spec)
    except (SpecError, ChildFailed) as error:
        # Words and line only: the folders of this machine are nobody's business.
        line = error.where.line if error.where is not None else None
        unread = error.message if line is None else f"line {line}: {error.message}"
    interface = Interface.of(
        found,
        None if recipe is None else recipe.inputs,
        None if recipe is None else recipe.output_dims,
    )
    base = work.compose()
    task = Task(
        work.package.name, base, assign(base), work.spec.name, source.text, recipe, unread,
        interface, wish.instruction, wish.comments, wish.examples,
    )  # fmt: skip
    return task, recipe


@dataclass(slots=True)
class ModelTransfer:
    """The model's part in one session. `work` must have been lifted."""

    work: Adaptation
    client: Client
    model: str
    consent: Consent
    parameters: Parameters = field(default_factory=Parameters)
    listen: Listen = deaf
    steer: Steer = no_words
    on_attempt: Callable[[Attempt], None] = lambda _: None
    through: Gate = Gate.G3  # the last gate that an answer must pass to end the loop
    also: Callable[[Module], str | None] = lambda _: None  # one more demand: why it is not met
    turn: Callable[[], AbstractContextManager[object]] = nullcontext  # held while gates run
    _agreed: frozenset[tuple[str, str, str]] = frozenset()  # place, model, part

    def prepare(self, wish: Wish | None = None) -> tuple[Task, Recipe | None]:
        """The task that a prompt is made of. The base is what the standing decisions give."""
        return task_of(self.work, wish)

    def first_prompt(self, task: Task) -> tuple[Message, ...]:
        """The prompt as it would be sent: to read, to edit, and to give to `run`."""
        return first_messages(task, self.manual())

    def outgoing(
        self, task: Task, requests: int, prompt: Sequence[Message] | None = None
    ) -> Outgoing:
        """What the first request carries, by part."""
        messages = self.first_prompt(task)
        if prompt is not None and tuple(prompt) != messages:
            size = sum(len(m.text.encode("utf-8", "replace")) for m in prompt)
            return Outgoing(
                self.client.place,
                self.model,
                (Part("the prompt as you edited it", size),),
                requests,
                self.client.manner,
            )
        whole = sum(len(m.text.encode("utf-8", "replace")) for m in messages)
        parts = [
            Part("instructions and the CuIR manual", len(messages[0].text.encode())),
            Part(f"the lifted kernel {task.kernel} as CuIR", len(print_module(task.base).encode())),
            Part(
                f"the spec {task.spec_name}, its code alone",
                len(code_alone(task.spec_text).encode()),
            ),
        ]
        parts += [
            Part(f"the accepted edit of session {e.session}", len(example_text(e).encode()))
            for e in task.examples
        ]
        rest = whole - sum(p.bytes for p in parts)
        words = "recipe, inputs, ids" + (", your instruction" if task.instruction else "")
        parts.append(Part(words, max(rest, 0)))
        return Outgoing(self.client.place, self.model, tuple(parts), requests, self.client.manner)

    @staticmethod
    def manual() -> str:
        return manual()

    def run(
        self,
        rounds: int,
        candidates: int,
        wish: Wish | None = None,
        prompt: Sequence[Message] | None = None,
    ) -> Result:
        """Ask, judge, repair; record everything; make the best attempt a proposal.

        `prompt` is an edited or resent first prompt in place of the one that `wish` gives. Blocks
        until done: `listen` and `on_attempt` are called meanwhile, `listen` from another thread;
        `bench.cancel` ends it at once.

        Raises:
            LlmError: the server gave no answer; what came before is recorded.
            InputError: the person did not agree to what would be sent.
        """
        task, recipe = self.prepare(wish)
        plan = Plan(self.model, self.parameters, rounds, candidates)
        self._agree(task, candidates * (rounds + 1), prompt)
        start = self.first_prompt(task) if prompt is None else tuple(prompt)
        number = 1 + sum(p.origin is Origin.MODEL for p in self.work.edits)
        name, actor = f"model-{number}", actor_name(self.model)
        attempts: list[Attempt] = []
        judge = ModelGates(self.work, self.through, self.also, self.turn).judge(recipe)
        ask = asker(self.work, self.client, self.listen)
        with noted(self.work, name, attempts):
            for attempt in run(task, start, plan, ask, judge, self.steer):
                attempts.append(attempt)
                self.work.writer.append(*attempt_events(name, attempt), actor=actor)
                self.on_attempt(attempt)
        chosen = best(attempts)
        proposal = None
        if chosen is not None:
            proposal, events = proposal_events(name, task, recipe, chosen)
            self.work.writer.append(*events, actor=actor)
        cancelled = any(a.reply.ending is Ending.CANCELLED for a in attempts)
        return Result(tuple(attempts), chosen, proposal, cancelled)

    def _agree(self, task: Task, requests: int, prompt: Sequence[Message] | None) -> None:
        outgoing = self.outgoing(task, requests, prompt)
        wanted = frozenset((outgoing.place, outgoing.model, p.name) for p in outgoing.parts)
        if wanted <= self._agreed:
            return
        agree(self.consent, outgoing)
        self._agreed |= wanted


def attempt_events(name: str, attempt: Attempt) -> Events:
    """An attempt's transcript, and its module where there is one, as a session keeps them."""
    about = f"{name}.{attempt.id}"
    text = attempt.transcript()
    bodies: list[Body] = [TranscriptAdded(f"{about}.json", sha256_of(text), about)]
    blobs = [text.encode("ascii")]
    if attempt.module is not None:
        module = print_module(attempt.module)
        bodies.append(TranscriptAdded(f"{about}.cuir", sha256_of(module), about))
        blobs.append(module.encode())
    return bodies, blobs


def proposal_events(
    name: str, task: Task, recipe: Recipe | None, chosen: Attempt
) -> tuple[Proposal, Events]:
    """An attempt that became a module as a proposal, undecided, with the target before it."""
    assert chosen.module is not None and chosen.binding is not None
    proposal = propose(
        task.base, chosen.module, id=name, origin=Origin.MODEL, reason=chosen.words,
        ids=task.ids, transcript=sha256_of(chosen.transcript()),
    )  # fmt: skip
    text = print_module(chosen.module)
    artifacts = [
        Artifact.of(Stage.TARGET, BINDING, pretty_json(chosen.binding.to_json())),
        Artifact.of(Stage.TARGET, TARGET, print_module(task.base)),
    ]
    if recipe is not None:
        recipe_text = pretty_json(recipe_to_json(recipe))
        artifacts.insert(0, Artifact.of(Stage.TARGET, RECIPE, recipe_text))
    kept = TranscriptAdded(f"{name}.proposed.cuir", sha256_of(text), name)
    bodies: list[Body] = [kept, ProposalMade(proposal)]
    bodies += [ArtifactSet(a.stage, a.name, a.sha256) for a in artifacts]
    return proposal, (bodies, [text.encode(), *(a.data for a in artifacts)])


__all__ = [
    "Consent",
    "ModelTransfer",
    "Outgoing",
    "Part",
    "Result",
    "Wish",
    "accepted_example",
    "offered_examples",
]
