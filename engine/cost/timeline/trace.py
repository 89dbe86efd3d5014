"""What one role executes of one block, op by op, as far as a timeline shows it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.cost.card import Card
from engine.cost.nodes import Branch, Loop, Node, Op, Set, has_steps
from engine.cost.values import UNKNOWN
from engine.cost.walk import Env, Ordered, Step, Tally
from engine.errors import CuirError

MOST_OPS = 6000  # of a role


@dataclass(frozen=True, slots=True)
class Moment:
    """One execution of an op. `given` is what its barrier is given, by operand; `step` the step
    over a key tile that it is part of, from 0 on, None outside of them."""

    op: Op
    given: Mapping[str, int] = field(default_factory=dict)
    step: int | None = None


class Enough(Exception):
    """As many steps as are wanted."""


class Trace(Ordered):
    """The moments of a role's first `steps` steps; of a role without steps (it only loads for
    others), as many ops as those may ask for.

    Where data decides, the costly way is taken and loops go on: over key tiles to the end of the
    trace, others not at all.
    """

    def __init__(self, card: Card, nodes: Sequence[Node], env: Env, steps: int) -> None:
        super().__init__(card)
        self.moments: list[Moment] = []
        self.rows: list[int] = []  # by step: which row of tiles it is of
        self.most, self.row = steps, -1
        self.step: int | None = None
        self.takes_steps = has_steps(nodes)
        self.cut = True  # it goes on beyond its moments
        with contextlib.suppress(Enough):
            self.run(nodes, dict(env), Tally())
            self.cut = False

    def run(self, nodes: Sequence[Node], env: Env, tally: Tally) -> None:
        for node in nodes:
            match node:
                case Op():
                    self.moments.append(Moment(node, given(node, env), self.step))
                    if len(self.moments) >= MOST_OPS:
                        raise Enough
                case Set(target, value, _):
                    env[target] = value(env)
                case Branch(test, _, then, other):
                    self.run(self.way(test(env), then, other), env, tally)
                case Loop():
                    self.rounds_of(node, env, tally)

    def rounds_of(self, node: Loop, env: Env, tally: Tally) -> None:
        first, last, by = (bound(env) for bound in node.bounds)
        if by == 0:
            raise CuirError("a loop with a step of 0")
        first, by = (0 if first is UNKNOWN else first), (1 if by is UNKNOWN else by)
        if last is UNKNOWN:
            tiles = node.is_step or not (self.takes_steps or has_steps(node.body))
            last = first + by * MOST_OPS if tiles else first
        self.row += 1
        for value in range(int(first), int(last), int(by)):
            env[node.var] = value
            if not node.is_step:
                self.run(node.body, env, tally)
                continue
            if len(self.rows) == self.most:
                raise Enough
            self.step = len(self.rows)
            self.rows.append(self.row)
            self.run(node.body, env, tally)
            self.step = None

    def of_steps(self) -> dict[int, Step]:
        """The ops of each step, in their order."""
        out: dict[int, list[Op]] = {}
        for moment in self.moments:
            if moment.step is not None:
                out.setdefault(moment.step, []).append(moment.op)
        return {number: tuple(ops) for number, ops in out.items()}


def given(op: Op, env: Env) -> dict[str, int]:
    """The numbers that an op's barrier is given. Raises `CuirError` where data decides them."""
    if op.order is None:
        return {}
    found: dict[str, Any] = {name: value(env) for name, value in op.order.numbers.items()}
    if UNKNOWN in found.values():
        raise CuirError(f"what {op.name} waits for depends on what a tensor holds")
    return {name: int(value) for name, value in found.items()}
