"""Edits of the target from a model, in a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from engine.child.wire import ChildFailed
from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.errors import InputError
from engine.llm.types import Message
from engine.service.models.llm_conversation import (
    Conversation,
    Events,
    Outgoing,
    Part,
    Result,
    manual,
    size_of,
)
from engine.service.models.llm_findings import room_words
from engine.service.models.llm_gates import ModelGates
from engine.service.session.adaptation import pretty_json
from engine.service.session.content import BINDING, RECIPE, TARGET
from engine.service.session.stage_work import Work
from engine.spec.python.declarations import declared
from engine.spec.python.spec_file import read_source
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.llm.bind import Interface
from engine.transfer.llm.editing import ASKED, Edit, best, judge_edit
from engine.transfer.llm.loop import Attempt
from engine.transfer.llm.prompt import Comment, Task, code_alone, first_messages
from engine.transfer.proposals.review import propose
from engine.types import (
    Artifact,
    Gate,
    Origin,
    Proposal,
    Stage,
    sha256_of,
)
from sessions.events import ArtifactSet, Body, ProposalMade, TranscriptAdded


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person adds to a run, and how many answers each candidate has."""

    instruction: str = ""
    comments: tuple[Comment, ...] = ()
    answers: int = 1


def task_of(work: Work, wish: Wish | None = None) -> tuple[Task, Recipe | None]:
    """What an edit is asked for: the base that the standing decisions give, and the spec."""
    wish = wish or Wish()
    work.bench.progress("reading the spec")
    source = read_source(work.spec, dict(work.options.spec))
    found = declared(source)
    recipe, unread = None, ""
    try:
        recipe = work.read_recipe(work.spec, work.options.spec)
    except (InputError, ChildFailed) as error:
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
        interface, room_words(base), wish.answers, wish.instruction, wish.comments,
    )  # fmt: skip
    return task, recipe


@dataclass(slots=True)
class ModelTransfer(Conversation[Edit]):
    """The model's part in the target of one session."""

    through: Gate = Gate.G3  # the last gate that an answer must pass to end the loop
    also: Callable[[Module], str | None] = lambda _: None  # one more demand: why it is not met
    turn: Callable[[], AbstractContextManager[object]] = nullcontext  # held while gates run

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
            content = sha256_of("\0".join(m.text for m in prompt))
            edited = Part("the prompt as you edited it", size_of(prompt), content)
            return self.sending((edited,), requests)
        parts = [
            Part("instructions and the CuIR manual", size_of(messages[:1])),
            Part(f"the lifted kernel {task.kernel} as CuIR", len(print_module(task.base).encode())),
            Part(
                f"the spec {task.spec_name}, its code alone",
                len(code_alone(task.spec_text).encode()),
            ),
        ]
        rest = size_of(messages) - sum(p.bytes for p in parts)
        words = "recipe, inputs, ids" + (", your instruction" if task.instruction else "")
        parts.append(Part(words, max(rest, 0)))
        return self.sending(parts, requests)

    @staticmethod
    def manual() -> str:
        return manual()

    def run(
        self,
        rounds: int,
        candidates: int,
        wish: Wish | None = None,
        prompt: Sequence[Message] | None = None,
    ) -> Result[Edit]:
        """Ask, judge, repair; record everything; make the best attempt a proposal.

        `prompt` is an edited or resent first prompt in place of the one that `wish` gives. Blocks
        until done: `listen` and `on_attempt` are called meanwhile, `listen` from another thread;
        `bench.cancel` ends it at once.

        Raises:
            LlmError: the server gave no answer; what came before is recorded.
            InputError: the person did not agree to what would be sent.
        """
        task, recipe = self.prepare(replace(wish or Wish(), answers=rounds + 1))
        outgoing = self.outgoing(task, candidates * (rounds + 1), prompt)
        start = self.first_prompt(task) if prompt is None else tuple(prompt)
        name = f"model-{1 + sum(p.origin is Origin.MODEL for p in self.work.edits)}"
        gates = ModelGates(self.work, task, self.through, self.also, self.turn).judge(recipe)
        attempts = self.hold(
            name, outgoing, start, rounds, judge_edit(task, gates),
            candidates=candidates, asked=ASKED,
        )  # fmt: skip
        chosen = best(attempts)
        proposal = None
        if chosen is not None:
            proposal, events = proposal_events(name, task, recipe, chosen)
            self.work.writer.append(*events, actor=self.actor)
        return Result(attempts, proposal)

    def events(self, name: str, attempt: Attempt[Edit]) -> Events:
        return attempt_events(name, attempt)


def attempt_events(name: str, attempt: Attempt[Edit]) -> Events:
    """An attempt's transcript, and its module where there is one, as a session keeps them."""
    about = f"{name}.{attempt.id}"
    text = attempt.transcript()
    bodies: list[Body] = [TranscriptAdded(f"{about}.json", sha256_of(text), about)]
    blobs = [text.encode("ascii")]
    if attempt.outcome.value is not None:
        module = print_module(attempt.outcome.value.module)
        bodies.append(TranscriptAdded(f"{about}.cuir", sha256_of(module), about))
        blobs.append(module.encode())
    return bodies, blobs


def proposal_events(
    name: str, task: Task, recipe: Recipe | None, chosen: Attempt[Edit]
) -> tuple[Proposal, Events]:
    """An attempt that became a module as a proposal, undecided, with the target before it."""
    edit = chosen.outcome.value
    assert edit is not None
    proposal = propose(
        task.base, edit.module, id=name, origin=Origin.MODEL, reason=edit.words,
        ids=task.ids, transcript=sha256_of(chosen.transcript()),
    )  # fmt: skip
    text = print_module(edit.module)
    artifacts = [
        Artifact.of(Stage.TARGET, BINDING, pretty_json(edit.binding.to_json())),
        Artifact.of(Stage.TARGET, TARGET, print_module(task.base)),
    ]
    if recipe is not None:
        recipe_text = pretty_json(recipe_to_json(recipe))
        artifacts.insert(0, Artifact.of(Stage.TARGET, RECIPE, recipe_text))
    kept = TranscriptAdded(f"{name}.proposed.cuir", sha256_of(text), name)
    bodies: list[Body] = [kept, ProposalMade(proposal)]
    bodies += [ArtifactSet(a.stage, a.name, a.sha256) for a in artifacts]
    return proposal, (bodies, [text.encode(), *(a.data for a in artifacts)])
