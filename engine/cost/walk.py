"""Walks a role's tree for one block: which steps over key tiles it takes, and what else it does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.cost.card import Card
from engine.cost.nodes import Branch, Loop, Node, Op, Set
from engine.cost.values import UNKNOWN
from engine.errors import CuirError

Step = tuple[Op, ...]
Env = dict[str, Any]
MOST_ROUNDS = 2_000_000
MOST_INSIDE = 4096  # rounds of a loop inside a step


@dataclass(slots=True)
class Tally:
    """How often each step and each other op was executed.

    Counts need not be whole where data decides. `unknown` are rounds of loops whose bounds depend
    on data, once for each time the loop is met: the costliest round (a tile at the mask's edge) and
    the cheapest (one inside).
    """

    steps: dict[Step, float] = field(default_factory=lambda: defaultdict(float))
    unknown: dict[tuple[Step, Step], float] = field(default_factory=lambda: defaultdict(float))
    other: dict[Op, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, more: Tally, share: float = 1.0) -> None:
        for step, count in more.steps.items():
            self.steps[step] += count * share
        for both, count in more.unknown.items():
            self.unknown[both] += count * share
        for op, count in more.other.items():
            self.other[op] += count * share


class Walker:
    """Walks blocks of one role; loops with the same inputs are walked once."""

    def __init__(
        self, nodes: Sequence[Node], card: Card, likely: float = 1.0,
        weights: dict[int, float] | None = None, cut: float | None = None,
    ) -> None:  # fmt: skip
        self.nodes = nodes
        self.card = card
        self.likely = likely
        self.cut = cut  # what a number that data decides counts for: tiles that the mask cuts
        # Of stretches of `nodes`, by identity: those that walk their steps share them.
        self.weights = {} if weights is None else weights
        self.memo: dict[tuple[Any, ...], tuple[Tally, Env]] = {}
        self.rounds = 0

    def block(self, env: Env) -> Tally:
        """The tally of one block, whose indices and sizes are in `env`."""
        tally = Tally()
        self.run(self.nodes, dict(env), tally)
        return tally

    def run(self, nodes: Sequence[Node], env: Env, tally: Tally) -> None:
        for node in nodes:
            match node:
                case Op():
                    tally.other[node] += 1.0
                case Set(target, value, _):
                    env[target] = value(env)
                case Branch(test, _, then, other):
                    taken = test(env)
                    way = self.way(taken, then, other)
                    if taken is UNKNOWN and self.likely < 1.0:
                        self.split(way, other if way is then else then, env, tally)
                    else:
                        self.run(way, env, tally)
                case Loop():
                    found, changed = self.loop(node, env)
                    tally.add(found)
                    env.update(changed)

    def split(self, costly: Sequence[Node], cheap: Sequence[Node], env: Env, tally: Tally) -> None:
        """Both ways of a branch that data decides, the costly one as often as pairs are kept."""
        for way, share in ((cheap, 1.0 - self.likely), (costly, self.likely)):
            part = Tally()
            self.run(way, env, part)
            tally.add(part, share)

    def way(self, test: Any, then: Sequence[Node], other: Sequence[Node]) -> Sequence[Node]:
        """The way taken; the costlier one where data decides."""
        if test is not UNKNOWN:
            return then if test else other
        return max(then, other, key=self.weight)

    def weight(self, nodes: Sequence[Node]) -> float:
        """Cycles of the costliest way through nodes, each loop taken once."""
        known = self.weights.get(id(nodes))
        if known is not None:
            return known
        out = 0.0
        for node in nodes:
            if isinstance(node, Op):
                out += sum(node.demand.cycles(self.card).values()) + node.demand.latency(self.card)
            elif isinstance(node, Branch):
                out += max(self.weight(node.then), self.weight(node.other))
            elif isinstance(node, Loop):
                out += self.weight(node.body)
        self.weights[id(nodes)] = out
        return out

    def ordered(self, cheap: bool = False) -> Ordered:
        return Ordered(self.card, cheap, self.weights)

    def loop(self, node: Loop, env: Env) -> tuple[Tally, Env]:
        key = (id(node), *(env.get(name) for name in sorted(node.inputs)))
        known = self.memo.get(key)
        if known is None:
            known = self.memo[key] = self.walked(node, dict(env))
        return known

    def walked(self, node: Loop, env: Env) -> tuple[Tally, Env]:
        tally = Tally()
        ends = [bound(env) for bound in node.bounds]
        unknown = UNKNOWN in ends
        if not unknown and ends[2] == 0:
            raise CuirError("a loop with a step of 0")
        # Where data bounds it, a round in the middle stands for all.
        middle = ends[0] + ends[2] if UNKNOWN not in (ends[0], ends[2]) else UNKNOWN
        for value in (middle,) if unknown else range(*map(int, ends)):
            self.rounds += 1
            if self.rounds > MOST_ROUNDS:
                raise CuirError("the loops of this kernel take too many rounds at these sizes")
            env[node.var] = value
            if not node.is_step and not unknown:
                self.run(node.body, env, tally)
                continue
            if unknown and self.cut is not None:
                rounds = self.as_cut(node, env)
                if rounds is not None:
                    middle_round = Tally()
                    self.run(node.body, env, middle_round)
                    tally.add(middle_round, rounds)
                    continue
            if unknown:
                ways = (self.ordered(), self.ordered(cheap=True))
                for way in ways:
                    way.run(node.body, dict(env), Tally())
                tally.unknown[tuple(ways[0].ops), tuple(ways[1].ops)] += 1.0
                continue
            one = self.ordered()
            one.run(node.body, env, Tally())
            tally.steps[tuple(one.ops)] += 1.0
        return tally, {name: env.get(name, UNKNOWN) for name in node.writes}

    def as_cut(self, node: Loop, env: Env) -> float | None:
        """Rounds of a loop that data bounds, each number that data decides being `cut`."""
        known = {name: self.cut if value is UNKNOWN else value for name, value in env.items()}
        ends = [bound(known) for bound in node.bounds]
        if UNKNOWN in ends or ends[2] == 0:
            return None
        return max(0.0, float(ends[1] - ends[0]) / float(ends[2]))


class Ordered(Walker):
    """Notes the ops of one step in their order; where data decides, the costly way or the cheap."""

    def __init__(
        self, card: Card, cheap: bool = False, weights: dict[int, float] | None = None
    ) -> None:
        super().__init__((), card, weights=weights)
        self.ops: list[Op] = []
        self.cheap = cheap

    def way(self, test: Any, then: Sequence[Node], other: Sequence[Node]) -> Sequence[Node]:
        if test is not UNKNOWN:
            return then if test else other
        return (min if self.cheap else max)(then, other, key=self.weight)

    def run(self, nodes: Sequence[Node], env: Env, tally: Tally) -> None:
        for node in nodes:
            match node:
                case Op():
                    self.ops.append(node)
                case Set(target, value, _):
                    env[target] = value(env)
                case Branch(test, _, then, other):
                    self.run(self.way(test(env), then, other), env, tally)
                case Loop():
                    ends = [bound(env) for bound in node.bounds]
                    known = UNKNOWN not in ends and ends[2] != 0
                    if known and len(range(*map(int, ends))) > MOST_INSIDE:
                        raise CuirError(
                            "a loop inside a step over a key tile takes too many rounds"
                        )
                    for index in range(*map(int, ends)) if known else (UNKNOWN,):
                        env[node.var] = index
                        self.run(node.body, env, tally)
