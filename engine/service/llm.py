"""A session's model: what is sent where, the loop over the gates, and what the session keeps of it.

Nothing leaves the machine before `consent` has been given what goes and where. Every attempt is
kept as a transcript, failed ones with their verdict; the best one becomes a proposal like any
other, whose hunks a person decides on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from engine.child.client import ChildFailed
from engine.cuir.diff import apply, diff
from engine.cuir.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, InputError, Interrupted, LowerError, SpecError
from engine.gates.g3 import G3
from engine.lift import lift_source, specialisation_key
from engine.lift.meanings import known_meanings, like
from engine.llm.ask import ask
from engine.llm.settings import Prices
from engine.llm.types import (
    Client,
    Ending,
    Listen,
    Message,
    Parameters,
    Reply,
    Request,
    Usage,
    deaf,
)
from engine.lower.lower import lower
from engine.resources import docs_dir
from engine.service.adaptation import Adaptation, pretty_json
from engine.service.kinds import edits
from engine.service.work import BINDING, GATE_SECONDS, RECIPE, TARGET, Work
from engine.spec.declared import declared
from engine.spec.recipe import Recipe
from engine.spec.source import read_source
from engine.spec.text import recipe_to_json
from engine.transfer.binding import Binding
from engine.transfer.llm.bind import Interface
from engine.transfer.llm.loop import (
    Attempt,
    Judgement,
    Plan,
    Reached,
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
    DecisionKind,
    Gate,
    Origin,
    Proposal,
    Stage,
    VerdictKind,
    sha256_of,
)
from sessions.events import ArtifactSet, Body, Note, ProposalMade, TranscriptAdded
from sessions.session import Session

MANUAL = "cuir.md"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a request carries: what it is, and its size."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What the person sees before anything is sent."""

    place: str  # host and port
    model: str
    parts: tuple[Part, ...]
    requests: int  # at most
    manner: str = ""  # how it travels, with which key

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.parts)

    def words(self) -> str:
        """In a few lines."""
        rows = "\n".join(f"  {p.bytes:>8} bytes  {p.name}" for p in self.parts)
        return (
            f"to {self.place} ({self.manner}), model {self.model}, at most {self.requests} "
            f"requests; the first one carries {self.bytes} bytes:\n{rows}\n"
            "later ones add the model's own answers and what the gates found"
        )


Consent = Callable[[Outgoing], bool]


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
        wish = wish or Wish()
        work = self.work
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
        return (docs_dir() / MANUAL).read_text(encoding="utf-8")

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
        name = f"model-{number}"
        attempts: list[Attempt] = []
        try:
            for attempt in run(task, start, plan, self._ask, self._judge(recipe), self.steer):
                attempts.append(attempt)
                self._keep(name, attempt)
                self.on_attempt(attempt)
        except CuBridgeError as error:
            said = f"{name}: stopped after {len(attempts)} answers: {error.message}"
            self.work.writer.append([Note(said)], actor=self.work.actor)
            raise
        chosen = best(attempts)
        proposal = None if chosen is None else self._propose(name, task, recipe, chosen)
        cancelled = any(a.reply.ending is Ending.CANCELLED for a in attempts)
        return Result(tuple(attempts), chosen, proposal, cancelled)

    def _agree(self, task: Task, requests: int, prompt: Sequence[Message] | None) -> None:
        outgoing = self.outgoing(task, requests, prompt)
        wanted = frozenset((outgoing.place, outgoing.model, p.name) for p in outgoing.parts)
        if wanted <= self._agreed:
            return
        if not self.consent(outgoing):
            raise InputError(
                f"nothing was sent to {outgoing.place}",
                fix="look at what would be sent, then agree (--yes in the headless run)",
            )
        self._agreed |= wanted

    def _ask(self, request: Request) -> Reply:
        self.work.bench.progress(f"asking {request.model} at {self.client.place}")
        return ask(self.client, request, self.listen, self.work.bench.cancel)

    # --- gates -----------------------------------------------------------------------------------

    def _judge(self, recipe: Recipe | None) -> Callable[[Module, Binding], Judgement]:
        spec = sha256_of(self.work.spec.read_bytes())

        def judge(module: Module, binding: Binding) -> Judgement:
            with self.turn():
                return judge_in_turn(module, binding)

        def judge_in_turn(module: Module, binding: Binding) -> Judgement:
            found = self._g2(module, binding, recipe)
            if found.reached is Reached.PASSED:
                found = self._g2_elsewhere(module, binding, recipe, found)
            unmet = self.also(module) if found.reached is Reached.PASSED else None
            if unmet is not None:
                found = Judgement(Reached.UNMET, unmet)
            if found.reached is Reached.PASSED and self.through is not Gate.G2:
                found = self._g3(module, found)
            if sha256_of(self.work.spec.read_bytes()) != spec:
                raise InputError(
                    f"{self.work.spec.name} changed while a model was asked", fix="start again"
                )
            return found

        return judge

    def _g2(
        self, module: Module, binding: Binding, recipe: Recipe | None, where: str = ""
    ) -> Judgement:
        work = self.work
        work.bench.progress(f"G2: running the model's edit against the spec{where}")
        payload: dict[str, Any] = {
            "module": print_module(module),
            "recipe": None if recipe is None else recipe_to_json(recipe),
            "binding": binding.to_json(),
            "spec": str(work.spec),
            "options": dict(work.options.spec),
            "cases": [unforeseen_case(module)],
            "explain": True,
        }
        try:
            answer = work.bench.child.call(
                "judge", payload, seconds=GATE_SECONDS, cancel=work.bench.cancel,
                progress=work.bench.progress,
            )  # fmt: skip
        except Interrupted:
            raise
        except ChildFailed as error:
            return Judgement(Reached.G2, error.message)
        except CuBridgeError as error:  # what the module itself cannot run
            return Judgement(Reached.G2, str(error))
        details = dict(answer["details"])
        op = str(details.get("op") or "")
        reached = Reached.PASSED if answer["ok"] else Reached.G2
        return Judgement(reached, str(answer["reason"]), op, details)

    def _g2_elsewhere(
        self, module: Module, binding: Binding, recipe: Recipe | None, found: Judgement
    ) -> Judgement:
        """The same edit in another specialisation of the source: what is right at one head size or
        element type alone is found here. `found` where there is none, or where G3 will say that
        the edit does not fit."""
        work = self.work
        other = elsewhere(work, module)
        if other is None:
            return found
        key, edited = other
        judged = self._g2(edited, binding, recipe, f", as {key}")
        if judged.reached is Reached.PASSED:
            return found
        reason = f"as {key}, which is built of the same text: {judged.reason}"
        return Judgement(judged.reached, reason, judged.op, judged.details)

    def _g3(self, module: Module, found: Judgement) -> Judgement:
        """The text of G3 and, where nvcc is, its compile: a model can repair what fails there."""
        work = self.work
        try:
            lowered = lower(work.lifted, module)
            result = work.judge_source(module, lowered.source)
        except LowerError as error:
            return Judgement(Reached.LOWERING, f"it cannot be lowered: {error}")
        except CuBridgeError:
            raise
        except Exception as error:  # a text that nobody thought of must not end the session
            reason = f"it cannot be lowered ({type(error).__name__}: {error})"
            return Judgement(Reached.LOWERING, reason)
        if result.kind is VerdictKind.FAIL:
            return Judgement(Reached.LOWERING, result.reason + lowered_line(result, lowered.source))
        return found

    # --- records ---------------------------------------------------------------------------------

    def _keep(self, name: str, attempt: Attempt) -> None:
        """An attempt's transcript, and its module where there is one."""
        text = attempt.transcript()
        bodies: list[Body] = [
            TranscriptAdded(f"{name}.{attempt.id}.json", sha256_of(text), f"{name}.{attempt.id}")
        ]
        blobs = [text.encode("ascii")]
        if attempt.module is not None:
            module = print_module(attempt.module)
            bodies.append(
                TranscriptAdded(
                    f"{name}.{attempt.id}.cuir", sha256_of(module), f"{name}.{attempt.id}"
                )
            )
            blobs.append(module.encode())
        self.work.writer.append(bodies, blobs, actor=actor_name(self.model))

    def _propose(self, name: str, task: Task, recipe: Recipe | None, chosen: Attempt) -> Proposal:
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
        blobs = [text.encode(), *(a.data for a in artifacts)]
        self.work.writer.append(bodies, blobs, actor=actor_name(self.model))
        return proposal


def lowered_line(result: G3, source: bytes) -> str:
    """The line of the lowered source that G3 names, since a model sees CuIR alone."""
    number = result.details.get("line")
    lines = source.decode("utf-8", "replace").split("\n")
    if not isinstance(number, int) or not 1 <= number <= len(lines):
        return ""
    return f"\n    {lines[number - 1].strip()}"


def actor_name(model: str) -> str:
    """The model as the event log names it."""
    return f"model {model}"


def elsewhere(work: Work, module: Module) -> tuple[str, Module] | None:
    """The specialisation that differs most from the session's, and the edit that leads to `module`
    made there; None where there is no other, or where the edit does not fit it."""
    lifted = work.lifted
    own = {k: v for k, v in lifted.specialisation.items() if k != "arch"}

    def distance(binding: Mapping[str, str]) -> int:
        return sum(binding[k] != own.get(k) for k in binding)

    binding = max(work.package.specialisations, key=distance, default=None)
    if binding is None or not distance(binding):
        return None
    base = lift_source(
        lifted.source, binding, work.options.arch, file=work.package.file, entry=work.package.entry
    ).module
    base = like(base, known_meanings(lifted.module))
    edit = diff(replace(lifted.module, spec=()), replace(module, spec=()))
    try:
        made = replace(apply(edit, replace(base, spec=())), spec=base.spec)
    except ValueError:
        return None
    return specialisation_key(binding), made


def unforeseen_case(module: Module) -> Mapping[str, Any]:
    """Sizes that follow from the module's own text: an edit cannot be made for them beforehand."""
    digest = hashlib.sha256(print_module(module).encode()).digest()
    group, kv = ((2, 1), (1, 2), (3, 1), (2, 2))[digest[0] % 4]
    return {
        "B": 1 + digest[1] % 2,
        "Hq": group * kv,
        "Hkv": kv,
        "Nq": 9 + int.from_bytes(digest[2:4]) % 150,
        "Nk": 9 + int.from_bytes(digest[4:6]) % 150,
        "modes": ("exact",),
    }


def accepted_example(session: Session) -> Example:
    """What a session's person accepted, to be cited in another one's prompt.

    Raises:
        InputError: nothing was accepted there, or no hunk stands.
    """
    state = session.state
    hunks = [
        (hunk.before, decision.replacement if decision.replacement is not None else hunk.after)
        for proposal in edits(state.proposals)
        for hunk in proposal.hunks
        if (decision := state.decision(proposal.id, hunk.id)) is not None
        and decision.kind is not DecisionKind.REJECTED
    ]
    if state.acceptance is None or not hunks:
        raise InputError(
            f"session {session.id} has no accepted edit to show",
            fix="name a session whose kernel was accepted",
        )
    return Example(session.id, state.title, tuple(hunks))


__all__ = ["Consent", "ModelTransfer", "Outgoing", "Part", "Result", "Wish", "accepted_example"]
