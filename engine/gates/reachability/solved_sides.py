"""At which sizes a condition comes out one way, by the solver: at none, or at the smallest.

What is said of names is what the text says of them; of a block, a batch, a row or a key that it may
be any that there is. So none is a proof, and the smallest sizes are run as a case: a block and a
tile may never meet as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import z3

from engine.cuir.nodes import Expr, Path, free_names
from engine.gates.analysis.conditions import Condition as Asked
from engine.gates.analysis.conditions import Key
from engine.gates.analysis.path_conditions import climbs
from engine.gates.deck import SM_COUNT, Case
from engine.gates.reachability.name_values import (
    BLOCK,
    GROUP,
    MAX_WAYS,
    PROCESSORS,
    UNKNOWN,
    WARPGROUPS,
    Draw,
    Names,
)
from engine.gates.runs.subject import Subject
from engine.prove.domain import domain_of
from engine.prove.solver import Answer, Condition, Proven, Unknown, Whole, find
from engine.prove.terms import NotWhole, Terms, Value, as_truth, as_whole, names_in, truncated

STEPS = 200_000  # z3's, of one question to one of its solvers

_Draw = Draw[Value, tuple[Condition, ...]]


class SolvedSides(Names[Value, tuple[Condition, ...]]):
    """What the solver says of the conditions of one subject's module."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.domain = domain_of(subject.recipe.constraints, subject.columns)
        self.terms = Terms({}, subject.columns)
        self.bounds: dict[str, tuple[Condition, ...]] = {}  # of what may be any number of a range
        self.asked: dict[tuple[Key, bool], Condition] = {}
        self.partly: set[Path] = set()  # statements of which more holds than there are terms for
        # Those of most runs, and of cards with more.
        self.processors = self._any(PROCESSORS.id, lambda n: (n >= SM_COUNT,))

    def of(self, one: Asked, side: bool) -> tuple[Answer, bool]:
        """Proven where `one` comes out as `side` at no legal size, else the smallest at which it
        may; and whether that hangs on nothing but sizes and processors."""
        draws = self.draws(one.path, one.within)
        if len(draws) > MAX_WAYS:
            return Unknown("it is reached on many ways"), False
        self.terms.needs.clear()
        ways: list[Condition] = []
        for draw in draws:
            try:
                test = as_truth(self.value(one.test, draw, one.path))
            except UNKNOWN as error:
                return Unknown(str(error)), False
            held = self._reached(draw)
            ways.append(z3.And(*held, test if side else z3.Not(test)))
        for need in self.terms.needs:
            # What no term says: a quotient by what is not positive.
            if not isinstance(self._find((*need.path, z3.Not(need.claim))), Proven):
                return Unknown("a divisor that may not be positive"), False
        self.asked[one.key, side] = asked = z3.Or(*ways)
        exact = all(draw.path not in self.partly for draw in draws)
        exact = exact and names_in(asked) & self.bounds.keys() <= names_in(self.processors)
        return self._find((asked,), smallest=True), exact

    def may_be(self, one: Asked, side: bool, case: Case) -> bool:
        """Whether a condition of which `of` said something may come out so in this case too."""
        numbers = [(term, z3.IntVal(case.sizes[name])) for name, term in self.domain.sizes.items()]
        numbers.append((self.processors, z3.IntVal(case.processors)))
        return not z3.is_false(z3.simplify(z3.substitute(self.asked[one.key, side], *numbers)))

    def _find(self, asked: Sequence[Condition], smallest: bool = False) -> Answer:
        known = self._bounds((*asked, self.processors >= 0))
        given = (*self.domain.given, *known, *asked)
        if not smallest:
            return find(given, {}, (), STEPS)
        shown = {**self.domain.sizes, PROCESSORS.id: self.processors}
        return find(given, shown, (self.processors, *self.domain.smallest), STEPS)

    def _bounds(self, asked: Iterable[Condition]) -> list[Condition]:
        """What is known of the names in what is asked, and of those in that."""
        out: list[Condition] = []
        pending, seen = list(asked), set[str]()
        while pending:
            for name in sorted(names_in(pending.pop()) - seen):
                seen.add(name)
                out += self.bounds.get(name, ())
                pending += self.bounds.get(name, ())
        return out

    def _reached(self, draw: _Draw) -> tuple[Condition, ...]:
        """What holds where a statement stands and where it is called, as far as there are terms
        for it: the statement is reached at no other sizes."""
        if draw.reached is None:
            held: list[Condition] = []
            for test, outcome, path in self.tests(draw):
                first = len(self.terms.needs)
                with suppress(*UNKNOWN):
                    truth = as_truth(self.value(test, draw, path))
                    held.append(truth if outcome else z3.Not(truth))
                    continue
                self.partly.add(draw.path)
                del self.terms.needs[first:]
            draw.reached = tuple(held)
            if draw.caller is not None:
                draw.reached += self._reached(draw.caller)
        return draw.reached

    def value(self, expr: Expr, draw: _Draw, path: Path) -> Value:
        expr = self.in_names(expr, draw)
        env: dict[str, Any] = dict(self.domain.sizes)
        for name in sorted(free_names(expr) - env.keys() - self.terms.constants.keys()):
            env[name] = self.of_name(name, draw, path)
        return self.terms.value(expr, env)

    def one_of(self, name: str, values: Sequence[Value]) -> Value:
        whole = list(map(as_whole, values))
        if len(whole) == 1:
            return whole[0]
        return self._any(name, lambda n: (z3.Or(*(n == value for value in whole)),))

    def counted(self, path: Path, draw: _Draw) -> Value:
        """Its start, or what lies between that and its stop."""
        loop = self.loops[path]
        first, end = (as_whole(self.value(e, draw, path)) for e in (loop.start, loop.stop))
        up, down = climbs(loop) is not False, climbs(loop) is not True

        def between(n: Whole) -> tuple[Condition, ...]:
            ways = [n == first]
            ways += [z3.And(n >= first, n < end)] if up else []
            ways += [z3.And(n <= first, n > end)] if down else []
            return (z3.Or(*ways),)

        return self._any(loop.var, between)

    def begun(self, name: str, function: str) -> Value:
        """A batch, a head, a block, a row or a key: any that there is."""
        size = self.domain.sizes
        blocks = truncated(size["Nq"] + self.tiles.rows - 1, z3.IntVal(self.tiles.rows))
        below = {
            self.batch: size["B"], self.head: size["Hq"], GROUP.id: z3.IntVal(WARPGROUPS),
            BLOCK.id: size["B"] * size["Hq"] * blocks,
        }  # fmt: skip
        if (function, name) in self.places:
            ends = [size[n] for n in self.places[function, name]]
            return self._any(name, lambda n: (n >= 0, z3.Or(*(n < end for end in ends))))
        if name == PROCESSORS.id:
            return self.processors
        if not name or name not in below:
            raise NotWhole(f"{name} may be any number")
        return self._any(name, lambda n: (n >= 0, n < below[name]))

    def _any(self, name: str, bounds: Any) -> Value:
        """A number of which its bounds alone are known."""
        term = z3.Int(f"{name}${len(self.bounds)}")
        self.bounds[term.decl().name()] = bounds(term)
        return term
