"""What is proven of a module for all sizes before anything runs: its tile schedule against the
recipe's mask, and its order of work.

Each goal is proven, refuted by its smallest witness (which is then run as a case), or unknown; what
is unknown is looked at in a few sizes, and the verdict says that it was sampled, and where.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from engine.cuir.nodes import Call, Index, integers_in, stmt_exprs, walk_block, walk_expr
from engine.cuir.parser import parse_expr
from engine.errors import CuBridgeError
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import UNKNOWN as TILES
from engine.gates.deck import Case
from engine.gates.runs.deck_cases import bent
from engine.gates.runs.subject import Failure, Subject, op_text
from engine.gates.runs.tile_edges import apart
from engine.gates.schedules.list_goals import list_goals
from engine.gates.schedules.order_at_size import fault_at, sampled_cases
from engine.gates.schedules.schedule_at_size import Fault, ScheduleAt, sampled_sizes
from engine.gates.schedules.schedule_calls import asked_schedule
from engine.gates.schedules.work_pieces import asked_work
from engine.prove.domain import Domain, domain_of
from engine.prove.schedule import ScheduleGoals, TileSchedule
from engine.prove.solver import Answer, Goal, Proven, Unknown, Witness, prove
from engine.prove.terms import NotWhole, Terms, Value
from engine.prove.work_order import WorkOrder, work_goals

SCHEDULE, ORDER, DIVISORS = "the tile schedule", "the order of work", "divisors are positive"
LISTS = "what the lists of tiles are made of"
MAX_EVALUATIONS = 120_000  # of masks and schedules at sampled sizes: about a second
UNKNOWN = (CuBridgeError, LookupError, TypeError, ValueError, ArithmeticError)


@dataclass(frozen=True, slots=True)
class Proof:
    """One goal, of the tile schedule or the order of work, and its answer."""

    about: str
    goal: str
    answer: Answer

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"about": self.about, "goal": self.goal}
        match self.answer:
            case Proven(solver, seconds):
                return out | {"answer": "proven", "solver": solver, "seconds": round(seconds, 3)}
            case Witness(values, minimal, seconds):
                out |= {"answer": "witness", "witness": dict(values), "smallest": minimal}
                return out | {"seconds": round(seconds, 3)}
            case Unknown(reason, seconds):
                return out | {"answer": "unknown", "reason": reason, "seconds": round(seconds, 3)}


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was looked at instead of a proof: how many sizes, and why there is no proof."""

    about: str
    why: str
    sizes: int = 0

    def words(self) -> str:
        if self.sizes:
            return f"{self.about} was sampled at {self.sizes} sizes: {self.why}"
        return f"{self.about} was judged in runs alone: {self.why}"


@dataclass(frozen=True, slots=True)
class Proofs:
    """The answers, what was sampled instead, and the first fault with the case that shows it.
    `more` are cases that a deck needs for what is not proven."""

    proofs: tuple[Proof, ...] = ()
    sampled: tuple[Sampled, ...] = ()
    failure: Failure | None = None
    case: Case | None = None
    more: tuple[Case, ...] = ()

    def words(self) -> str:
        """What a verdict says of them."""
        proven = sum(isinstance(p.answer, Proven) for p in self.proofs)
        goals = "1 goal is" if proven == 1 else f"{proven} goals are"
        said = [f"{goals} proven for all sizes"] if proven else []
        return "; ".join([*said, *(s.words() for s in self.sampled)])

    def to_json(self) -> dict[str, Any]:
        """Each goal with its answer; what was sampled, and why."""
        return {
            "proofs": [proof.to_json() for proof in self.proofs],
            "sampled": [
                {"about": s.about, "why": s.why, "sizes": s.sizes} for s in self.sampled
            ],
        }  # fmt: skip


def proofs_of(subject: Subject) -> Proofs:
    """Proves what can be proven of the subject's schedule and order of work."""
    done: list[Proof] = []
    sampled: list[Sampled] = []
    more: list[Case] = []
    # Of a spec without a recipe no mask is known.
    for part in (_order,) if subject.unread else (_schedule, _order):
        found = part(subject)
        done += found.proofs
        sampled += found.sampled
        more += found.more
        if found.failure is not None:
            return Proofs(tuple(done), tuple(sampled), found.failure, found.case)
    return Proofs(tuple(done), tuple(sampled), more=tuple(more))


def fields_of(subject: Subject, terms: Terms, domain: Domain) -> dict[str, Value]:
    """The whole numbers of the argument struct, as terms over the sizes."""
    out = {s.field: terms.value(parse_expr(s.size), domain.sizes) for s in subject.binding.sizes}
    for scalar in subject.binding.scalars:
        try:
            out[scalar.field] = terms.value(scalar.value, domain.sizes)
        except NotWhole:
            continue
    return out


def case_at(sizes: Mapping[str, int]) -> Case:
    """A run in float64 at the sizes of a witness."""
    size = sizes.__getitem__
    return Case(size("B"), size("Hq"), size("Hkv"), size("Nq"), size("Nk"), modes=("exact",))


def domain_for(subject: Subject) -> Domain:
    """The sizes that the subject's spec allows."""
    return domain_of(subject.recipe.constraints, subject.columns)


# --- the tile schedule -------------------------------------------------------------------------


def _schedule(subject: Subject) -> Proofs:
    why = ""
    if subject.binding.workspace is not None:
        why = "its tiles are listed by what the inputs hold"
    elif any(isinstance(node, Index) for node in walk_expr(subject.recipe.keep)):
        why = "the mask reads inputs"
    if why:
        listed = [] if subject.binding.workspace is None else _listed(subject)
        unknown = _open(listed)
        if not unknown:
            return Proofs(tuple(listed), (Sampled(SCHEDULE, why),))
        tried = (bent(subject, case) for case in apart(tiles_of(subject.module) or TILES))
        more = tuple(case for case in tried if case is not None)
        return Proofs(tuple(listed), (Sampled(LISTS, unknown), Sampled(SCHEDULE, why)), more=more)
    try:
        asked = asked_schedule(subject.module)
    except UNKNOWN as error:
        return Proofs(sampled=(Sampled(SCHEDULE, _first_line(error)),))
    done: list[Proof] = []
    try:
        domain, terms = domain_for(subject), Terms.of(subject.module)
        goals = ScheduleGoals(
            terms, domain, fields_of(subject, terms, domain), asked, subject.recipe.keep
        )
        for stated in goals.stated():
            goal = stated.goal
            answer = prove(goal)
            if not isinstance(answer, Proven) and stated.weaker is not None:
                goal = stated.weaker
                answer = prove(goal)
            if isinstance(answer, Witness):
                case, fault = _confirmed(subject, asked, answer)
                if fault is not None:
                    done.append(Proof(SCHEDULE, goal.name, answer))
                    return Proofs(tuple(done), (), _schedule_failure(subject, case, fault), case)
                answer = Unknown("a step is taken in a way that the goal does not follow")
            done.append(Proof(SCHEDULE, goal.name, answer))
        done += _divisors(SCHEDULE, terms, domain)
    except UNKNOWN as error:
        done.append(Proof(SCHEDULE, SCHEDULE, Unknown(_first_line(error))))
    unknown = _open(done)
    if not unknown:
        return Proofs(tuple(done))
    return _sample(subject, asked, done, unknown)


def _listed(subject: Subject) -> list[Proof]:
    """What is proven of the lists of tiles. That an op says too little of one pair is no fault."""
    try:
        domain, terms = domain_for(subject), Terms.of(subject.module)
        goals = list(list_goals(subject, domain, fields_of(subject, terms, domain)))
    except UNKNOWN as error:
        return [Proof(LISTS, LISTS, Unknown(_first_line(error)))]
    answers = [(goal, prove(goal)) for goal in goals]
    unsaid = Unknown("what the ops say of one pair does not decide it")
    return [Proof(LISTS, g.name, unsaid if isinstance(a, Witness) else a) for g, a in answers]


def _open(done: Iterable[Proof]) -> str:
    """Which goals are not proven, and why; nothing where there is none."""
    left = {p.goal: p.answer.reason for p in done if isinstance(p.answer, Unknown)}
    return "; ".join(
        w if goal in (SCHEDULE, ORDER, LISTS) else f"{goal} ({w})" for goal, w in left.items()
    )


def _confirmed(subject: Subject, asked: TileSchedule, found: Witness) -> tuple[Case, Fault | None]:
    """The case of a witness, and what is wrong there on plain numbers."""
    at = found.values
    case = case_at(at)
    pairs = {}
    if "j" in at:
        pairs = {at["j"] // asked.keys: [(at["i"], at["j"])]}
    return case, ScheduleAt(subject, asked, case).fault(at["b"], at["h"], at["row0"], pairs)


def _sample(subject: Subject, asked: TileSchedule, done: list[Proof], why: str) -> Proofs:
    """Looks at sizes about the numbers of the mask and the schedule."""
    called = _functions(subject, asked)
    schedule = [e for f in called for _, s in walk_block(f.body, (f.name,)) for e in stmt_exprs(s)]
    numbers = integers_in([subject.recipe.keep, *schedule])
    looked: dict[Case, None] = {}
    spent = 0
    for nq, nk in sampled_sizes(asked, [n for n in reversed(numbers) if n > 1]):
        case = bent(subject, Case(1, 2, 1, nq, nk, modes=("exact",)))
        if case is None or case in looked:
            continue
        at = ScheduleAt(subject, asked, case)
        try:
            fault = at.first_fault()
        except UNKNOWN as error:
            return Proofs(tuple(done), (Sampled(SCHEDULE, f"{why}; {_first_line(error)}"),))
        looked[case] = None
        if fault is not None:
            failure = _schedule_failure(subject, case, fault)
            return Proofs(tuple(done), (Sampled(SCHEDULE, why, len(looked)),), failure, case)
        spent += at.evaluations
        if spent > MAX_EVALUATIONS:
            break
    return Proofs(tuple(done), (Sampled(SCHEDULE, why, len(looked)),))


def _functions(subject: Subject, asked: TileSchedule) -> list[Any]:
    """The schedule's functions and those that they call."""
    device = subject.module.devices
    schedule = (asked.count, asked.index, asked.full, *asked.passing)
    names = [n for n in schedule if n is not None]
    for name in names:  # grows
        for _, stmt in walk_block(device[name].body, (name,)):
            nodes = (n for e in stmt_exprs(stmt) for n in walk_expr(e))
            called = [n.fn for n in nodes if isinstance(n, Call) and n.fn in device]
            names += [n for n in dict.fromkeys(called) if n not in names]
    return [device[name] for name in names]


def _schedule_failure(subject: Subject, case: Case, fault: Fault) -> Failure:
    name = _changed(subject, fault.functions)
    reason = f"the tile schedule is wrong at {case}: {fault.words} ({name})"
    last = len(subject.module.function(name).body) - 1
    return Failure(reason, op_text((name, last)), {**fault.example, "case": str(case)})


def _changed(subject: Subject, names: tuple[str, ...]) -> str:
    """The one of these functions that an edit changed, else the first."""
    watch = subject.watch
    before = {} if watch is None else {f.name: f for f in watch.base.functions}
    now = {f.name: f for f in subject.module.functions}
    return next((n for n in names if n in before and before[n] != now[n]), names[0])


# --- the order of work -------------------------------------------------------------------------


def _order(subject: Subject) -> Proofs:
    done: list[Proof] = []
    try:
        orders = asked_work(subject.module)
        domain, terms = domain_for(subject), Terms.of(subject.module)
        fields = fields_of(subject, terms, domain)
        for order in orders:
            for goal in work_goals(terms, domain, fields, order):
                answer = prove(goal)
                done.append(Proof(ORDER, goal.name, answer))
                if isinstance(answer, Witness):
                    case = case_at(answer.values)
                    return Proofs(tuple(done), (), _order_failure(goal, case, answer), case)
        done += _divisors(ORDER, terms, domain)
        why = _open(done)
        return _sample_order(subject, orders, done, why) if why else Proofs(tuple(done))
    except UNKNOWN as error:
        done.append(Proof(ORDER, ORDER, Unknown(_first_line(error))))
    return Proofs(tuple(done), (Sampled(ORDER, _open(done)),))


def _sample_order(
    subject: Subject, orders: Iterable[WorkOrder], done: list[Proof], why: str
) -> Proofs:
    """Looks at few and many heads, with several blocks of rows each."""
    looked: dict[Case, None] = {}
    for order in orders:
        for sizes in sampled_cases(order):
            case = bent(subject, sizes)
            if case is None:
                continue
            looked[case] = None
            words = fault_at(subject, order, case)
            if words:
                failure = Failure(f"the order of work is wrong at {case}: {words}")
                return Proofs(tuple(done), (Sampled(ORDER, why, len(looked)),), failure, case)
    return Proofs(tuple(done), (Sampled(ORDER, why, len(looked)),))


def _order_failure(goal: Goal, case: Case, found: Witness) -> Failure:
    at = found.values
    words = f"piece {at['piece']} is batch {at['b']}, head {at['h']}, rows from {at['q0']} on"
    reason = f"the order of work is wrong at {case}: not so that {goal.name} ({words})"
    return Failure(reason, counterexample={"case": str(case), **at})


def _divisors(about: str, terms: Terms, domain: Domain) -> list[Proof]:
    """That each divisor is positive: no term says what C computes otherwise."""
    if not terms.needs:
        return []
    every = z3.And(*(z3.Implies(z3.And(*n.path), n.claim) for n in terms.needs))
    at = next(n for n in terms.needs)
    less = z3.Not(z3.And(*at.path, at.claim))
    answer = prove(Goal(DIVISORS, domain.given, every, less, domain.sizes, domain.smallest))
    if isinstance(answer, Witness):
        answer = Unknown(f"a divisor is not positive at {answer}")
    return [Proof(about, DIVISORS, answer)]


def _first_line(error: Exception) -> str:
    words = error.message if isinstance(error, CuBridgeError) else "it reads what is no size"
    return words.splitlines()[0]
