"""Costs of decisions in a process of their own, which gives way to the screen: a prediction takes a
second of pure Python, and a proposal has dozens of hunks.

One process serves one proposal. It is given the base, the proposed text and the hunks; it says the
expert's cost, that of all hunks accepted, then each hunk's absence; then what the target without
each hunk computes, tried at a few sizes. Targets that are given later come first, and so do
timelines, which are made where somebody asks. It ends when its input is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.child.environment import child_command, child_environment
from engine.cost.timeline.events import Timeline
from engine.gates.outcome import Trial
from engine.service.views.hunk_words import Explained, closure
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_from_json, recipe_to_json
from engine.transfer.binding import Binding
from engine.types import Origin, Proposal

EXPERT, ALL = "expert", "all"
ENDED = "the process that predicts costs ended; leave the session and open it again"
Told = Callable[[str, "Cost | Where | Timeline | Trial"], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds, TFLOP/s of kept pairs, how many pairs are visited for each kept one, what
    bounds it in words; `problem` says why there is none."""

    us: float = 0.0
    tflops: float = 0.0
    visited: float = 0.0
    bound: str = ""
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Question:
    """A proposal whose hunks are to be costed.

    `without` gives by a hunk's id what goes with it. `rules` gives by a rule's title what goes with
    all of its hunks, where that is more than goes with the first. Targets are tried where `binding`
    says how their arguments are filled.
    """

    base: str
    proposed: str
    proposal: Proposal
    recipe: Recipe | None
    without: Mapping[str, tuple[str, ...]]
    binding: Binding | None = None
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, base: str, proposed: str, proposal: Proposal, recipe: Recipe | None,
        explained: Mapping[str, Explained], binding: Binding | None = None,
    ) -> Question:  # fmt: skip
        sets = {h.id: closure(explained, h.id) for h in proposal.hunks}
        rules = {
            title: gone
            for title, mine in _by_rule(proposal).items()
            if (gone := closure(explained, *mine)) != sets[mine[0]]
        }
        return cls(base, proposed, proposal, recipe, sets, binding, rules)

    @property
    def sets(self) -> dict[str, tuple[str, ...]]:
        """All that is costed and tried, by a hunk's id or a rule's title."""
        return {**self.without, **self.rules}

    def at_first(self) -> dict[str, list[str]]:
        """The titles of `rules` by the first hunk of each."""
        found: dict[str, list[str]] = {}
        for title, mine in _by_rule(self.proposal).items():
            if title in self.rules:
                found.setdefault(mine[0], []).append(title)
        return found

    @property
    def tries(self) -> bool:
        """Whether the targets are run, too."""
        return self.recipe is not None and self.binding is not None

    def to_json(self) -> dict[str, Any]:
        recipe = None if self.recipe is None else recipe_to_json(self.recipe)
        binding = None if self.binding is None else self.binding.to_json()
        return {
            "base": self.base, "proposed": self.proposed, "proposal": self.proposal.to_json(),
            "recipe": recipe, "without": {k: list(v) for k, v in self.without.items()},
            "binding": binding, "rules": {k: list(v) for k, v in self.rules.items()},
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Question:
        recipe = None if data["recipe"] is None else recipe_from_json(data["recipe"])
        sets, rules = ({k: tuple(v) for k, v in data[of].items()} for of in ("without", "rules"))
        proposal = Proposal.from_json(data["proposal"])
        binding = None if data["binding"] is None else Binding.from_json(data["binding"])
        return cls(data["base"], data["proposed"], proposal, recipe, sets, binding, rules)


def _by_rule(proposal: Proposal) -> dict[str, list[str]]:
    """The hunks of each rule, by its title: a hunk that several rules wrote is of each. What a
    model or a person proposes is of no rule."""
    found: dict[str, list[str]] = {}
    for h in proposal.hunks:
        for title in h.title.split("; ") if h.origin is Origin.RULES and h.clause else ():
            found.setdefault(title, []).append(h.id)
    return found


@dataclass(frozen=True, slots=True)
class Where:
    """What all costs are for, in words: the card's title, the shape, the share of kept pairs."""

    card: str
    name: str
    shape: str
    kept: float
    examples: bool


class Costing:
    """The process of one question. `told` is called on a thread of its own with each answer: the
    name is `expert`, `all`, a hunk's id or a rule's title (for its cost, then its trial), or that
    of a target given to `now`; "" tells where. What the process leaves unanswered where it ends is
    told as a problem.
    """

    def __init__(self, question: Question, told: Told) -> None:
        self._process = subprocess.Popen(
            child_command("engine.service.views.costing_process"), env=child_environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True, text=True, encoding="utf-8",
        )  # fmt: skip
        self._told = told
        self._awaited: set[tuple[str, type[Cost | Timeline | Trial]]] = {
            (name, Cost) for name in (EXPERT, ALL, *question.sets)
        }
        self._awaited |= {(name, Trial) for name in question.sets if question.tries}
        self._problem = ""  # why no more answers come
        self._send(question.to_json())
        threading.Thread(target=self._listen, name="cubridge-costs", daemon=True).start()

    def now(self, name: str, target: str) -> None:
        """Ask for the cost of a target as it is decided now, before what is left of the hunks."""
        self._ask((name, Cost), {"name": name, "target": target})

    def timeline(self, name: str, target: str) -> None:
        """Ask for the timeline of a target, or of the expert's for an empty one, under a name of
        its own."""
        self._ask((name, Timeline), {"name": name, "timeline": target})

    def first(self, hunk: str) -> None:
        """A hunk that somebody looks at: before the others."""
        self._send({"first": hunk})

    def close(self) -> None:
        """End the process."""
        self._told = lambda _name, _cost: None
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)  # a trial too
        self._process.wait()

    def _ask(self, awaited: tuple[str, type[Cost | Timeline]], message: Mapping[str, Any]) -> None:
        self._awaited.add(awaited)
        self._send(message)
        if self._problem:
            self._give_up()

    def _send(self, message: Mapping[str, Any]) -> None:
        stream = self._process.stdin
        assert stream is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended: there are no costs then
            stream.write(json.dumps(message) + "\n")
            stream.flush()

    def _listen(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        problem = ENDED
        for line in stream:
            if not line.endswith("\n"):  # it was killed while it spoke
                break
            data = json.loads(line)
            name = str(data.get("name", ""))
            about = _read(data)
            if isinstance(about, Cost) and name == EXPERT and about.problem:
                problem = about.problem  # there is nothing to compare with
            if not isinstance(about, Where):
                self._awaited.discard((name, type(about)))
            self._told(name, about)
        self._problem = problem
        self._give_up()

    def _give_up(self) -> None:
        """Say of what is still awaited that it does not come. On either thread: each name is
        taken once."""
        with contextlib.suppress(KeyError):
            while True:
                name, kind = self._awaited.pop()
                self._told(name, kind(problem=self._problem))


def _read(data: Mapping[str, Any]) -> Cost | Where | Timeline | Trial:
    if "where" in data:
        return Where(**data["where"])
    if "timeline" in data:
        return Timeline.from_json(data["timeline"])
    if "trial" in data:
        return Trial(**data["trial"])
    return Cost(**data["cost"])
