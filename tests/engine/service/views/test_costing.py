"""What a target would take: kept pairs only, for one card; in a process of its own for the app."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from engine.cost.model import Prediction, bound_words
from engine.cost.timeline.events import Timeline
from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.gates.g3_source.speed import setting_of
from engine.gates.outcome import Trial
from engine.service.views.consequence import cost_of
from engine.service.views.costing import ENDED, Cost, Costing, Question, Where
from engine.service.views.costing_process import _cost
from engine.service.views.hunk_words import Explained, explain
from engine.spec.recipes.kept_pairs import kept_share
from engine.transfer.proposals.review import compose, propose
from engine.transfer.rules import apply, plan
from engine.types import Decision, DecisionKind, Hunk, Origin, Proposal
from engine.worker.problems.problem_sizes import Case
from tests.engine.transfer.recipes import VARIANTS, lifted

Answer = Cost | Where | Timeline | Trial
CASE = Case(2, 16, 16, 2048, 2048)
BASE, RECIPE = lifted("flash_fwd_sm80"), VARIANTS["softcap_causal"]
TRAIL = tuple(apply(BASE, plan(BASE, RECIPE).steps))
TARGET = TRAIL[-1][1]


def proposal() -> Proposal:
    return propose(
        BASE, TARGET, id="rules", origin=Origin.RULES, reason="r", ids=assign(BASE), trail=TRAIL
    )


def test_a_target_that_visits_what_is_not_kept_is_slower_and_has_a_lower_rate() -> None:
    """A rejected tile skip visits more pairs: counted, they would make it look faster."""
    made = proposal()
    skip = next(h.id for h in made.hunks if "tile_count" in h.after)
    taken = {h.id: Decision(h.id, DecisionKind.ACCEPTED, "") for h in made.hunks if h.id != skip}
    setting = replace(setting_of(BASE, RECIPE, None), case=CASE)
    assert setting.card.name == "a100" and setting.kept == pytest.approx(0.5, abs=0.01)
    every = cost_of(TARGET, setting)
    without = cost_of(compose(BASE, TARGET, made, taken), setting)
    assert without.us > 1.2 * every.us and without.tflops < every.tflops / 1.2
    assert without.visited == pytest.approx(2.0, abs=0.02) and every.visited < 1.1


@pytest.mark.parametrize(
    ("variant", "share"), [("softcap_causal", 0.5), ("sigmoid", 1.0), ("window", None)]
)
def test_kept_pairs(variant: str, share: float | None) -> None:
    kept = kept_share(VARIANTS[variant], CASE.sizes)
    assert kept == pytest.approx(share, abs=0.01) if share else kept < 0.5


def test_a_unit_bounds_only_where_it_is_busy() -> None:
    class Main:
        busy = {"tensor cores": 0.42, "special functions": 0.3}

    class Found:
        bound, main = "tensor cores", Main()

    found: Prediction = Found()  # type: ignore[assignment]
    assert bound_words(found) == "latency: the busiest unit, tensor cores, only 42%"
    Main.busy = {"tensor cores": 0.8}
    assert bound_words(found) == "tensor cores, 80% busy"


def test_the_process_says_where_the_expert_s_cost_and_timelines_and_ends() -> None:
    made = proposal()
    found = explain(BASE, TARGET, made, RECIPE)
    binding = plan(BASE, RECIPE).binding
    question = Question.of(print_module(BASE), print_module(TARGET), made, RECIPE, found, binding)
    assert Question.from_json(question.to_json()) == question
    told: dict[str, Answer] = {}
    came = threading.Event()

    def tell(name: str, about: Answer) -> None:
        told[name] = about
        if {"expert", "its lanes", "no lanes"} <= told.keys():
            came.set()

    costing = Costing(question, tell)
    costing.timeline("its lanes", "")
    costing.timeline("no lanes", "no module")
    try:
        assert came.wait(90)
    finally:
        costing.close()
    where, expert = told[""], told["expert"]
    assert isinstance(where, Where) and where.name == "A100" and where.shape.startswith("S 8192")
    assert isinstance(expert, Cost) and expert.us > 0 and not expert.problem
    assert costing._process.poll() is not None
    drawn, none = told["its lanes"], told["no lanes"]
    assert isinstance(drawn, Timeline) and drawn.lanes == ("block", "block, copies")
    assert isinstance(none, Timeline) and none.problem and not none.events


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_what_an_ended_process_leaves_open_is_a_problem(how: str) -> None:
    base = "no module" if how == "ends" else print_module(BASE)
    binding = plan(BASE, RECIPE).binding
    made = Proposal("rules", Origin.RULES, "r", ())
    question = Question(base, base, made, RECIPE, {"h1": ()}, binding)
    told: dict[str, Answer] = {}
    came = threading.Event()

    def tell(name: str, about: Answer) -> None:
        told[f"trial of {name}" if isinstance(about, Trial) else name] = about
        if {"expert", "all", "h1", "trial of h1", "now"} <= told.keys():
            came.set()

    costing = Costing(question, tell)
    try:
        if how == "is killed":
            costing._process.kill()
        costing.now("now", base)
        assert came.wait(90)
    finally:
        costing.close()
    words = {about.problem for about in told.values() if not isinstance(about, Where)}
    assert all(words) and len(told) == 5
    assert (words == {ENDED}) == (how == "is killed") and len(words) == 1


def test_all_hunks_of_a_rule_are_of_rules_alone_and_a_hunk_is_of_each_that_wrote_it() -> None:
    hunks = tuple(
        Hunk(f"h{n}", title, "r", "mask", "a", "b", (), Origin.RULES)
        for n, title in enumerate(("Mask", "Mask; Keep", "Keep"), 1)
    )
    apart = {h.id: Explained() for h in hunks}
    made = Proposal("rules", Origin.RULES, "r", hunks)
    question = Question.of("", "", made, RECIPE, apart)
    assert question.without == {"h1": ("h1",), "h2": ("h2",), "h3": ("h3",)}
    assert question.rules == {"Mask": ("h1", "h2"), "Keep": ("h2", "h3")}
    assert question.at_first() == {"h1": ["Mask"], "h2": ["Keep"]}
    assert Question.from_json(question.to_json()) == question
    # Without a rule the title says where a hunk is, and so do those of a model and of a person.
    for how in ({"clause": ""}, {"origin": Origin.MODEL}, {"origin": Origin.PERSON}):
        none = replace(made, hunks=tuple(replace(h, **how) for h in hunks))
        assert Question.of("", "", none, RECIPE, apart).rules == {}


def test_what_no_rule_foresees_is_an_internal_error() -> None:
    def fails() -> Module:
        raise KeyError("n")

    assert "internal error: KeyError" in _cost(fails, setting_of(BASE, None, None)).problem


def test_the_hunk_that_is_looked_at_is_costed_and_tried_before_the_others() -> None:
    made = proposal()
    found = explain(BASE, TARGET, made, RECIPE)
    binding = plan(BASE, RECIPE).binding
    question = Question.of(print_module(BASE), print_module(TARGET), made, RECIPE, found, binding)
    skip = next(h.id for h in made.hunks if "tile_full" in h.after)
    told: list[tuple[str, Answer]] = []
    came = threading.Event()

    def tell(name: str, about: Answer) -> None:
        told.append((name, about))
        if isinstance(about, Trial):
            came.set()

    costing = Costing(question, tell)
    costing.first(skip)
    try:
        assert came.wait(240)
    finally:
        costing.close()
    name, trial = told[-1]
    assert name == skip and isinstance(trial, Trial) and trial.checks
    assert trial.fault.startswith("the keep set differs") and len(told) < 8
