"""What a rule is, the case that it looks at, and the order in which rules work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from engine.cuir.nodes import Attr, Expr, Module, Name, Num, walk_expr
from engine.spec.recipes.recipe import OTHER, Input, Recipe
from engine.transfer.binding import Binding
from engine.transfer.logic import factored
from engine.transfer.match import Attention
from engine.transfer.rules.base.input_views import scalar_inputs
from engine.transfer.rules.base.list_layout import Lists
from engine.transfer.rules.base.prepared_operands import Prepared
from engine.transfer.rules.base.recipe_names import COLUMNS, Words

BYTES = {"T": 2, "f16": 2, "bf16": 2, "f32": 4, "i32": 4}


@dataclass(frozen=True)
class Case:
    """A recipe that is to be carried to a lifted module, and what rules ask of the two.

    `recipe` has names that are free in the kernel, `theirs` the spec's own for those that are ours.
    `orders` are the spec's own dimensions of inputs that have another order in the kernel.
    The score is `rest` with `args.scale` for `factor`; None: x times the factor and nothing more.
    Tiles have `narrower` steps of keys fewer than rules choose, whose build spilled.
    """

    module: Module
    found: Attention
    recipe: Recipe
    theirs: Mapping[str, str]
    orders: Mapping[str, tuple[str, ...]]
    words: Words
    lists: Lists | None
    factor: Expr
    rest: Expr | None
    prepared: tuple[Prepared, ...] = ()
    narrower: int = 0

    @cached_property
    def tables(self) -> tuple[Input, ...]:
        """The inputs that kernels of the launch's own fill before the attention."""
        return tuple(i for i in self.recipe.inputs if i.made not in (None, OTHER))

    @property
    def before(self) -> tuple[Prepared, ...]:
        """What kernels of their own make ready before the attention."""
        return tuple(i for i in self.prepared if not i.landed)

    @property
    def landed(self) -> Expr | None:
        """What an element of q becomes where its rows have landed, if it does there."""
        return self.recipe.q if len(self.before) < len(self.prepared) else None

    @property
    def masked(self) -> bool:
        return self.recipe.keep != Num(True)

    @property
    def softmax(self) -> bool:
        """Whether rows are normalised over their keys."""
        return self.recipe.weight is None

    @property
    def plain(self) -> bool:
        """Whether a softmax without a mask follows the score."""
        return self.softmax and not self.masked

    @property
    def queue(self) -> bool:
        """Whether blocks claim their work (ticket.py)."""
        return self.lists is not None and self.lists.queue

    @cached_property
    def keep(self) -> Expr:
        """The keep predicate, its scalar inputs read from the argument struct."""
        return factored(scalar_inputs(self.recipe.keep, self.recipe))

    @property
    def columns(self) -> tuple[str, ...]:
        """The numbers of columns that are fields, since the mask reads them."""
        return tuple(c for c in COLUMNS if self.words.sizes.get(c) == Attr(Name("args"), c))

    @cached_property
    def used(self) -> list[Input]:
        """The extra inputs that the recipe reads."""
        other = self.recipe.other
        multiplied = () if other is None else (other.q, other.k)
        return [i for i in self.recipe.extra() if i.name in multiplied or self.reads(i.name)]

    @property
    def bytes(self) -> dict[str, int]:
        """Of an element of each extra tensor; 0 where no tile of such is held."""
        return {t.name: BYTES.get(t.dtype, 0) for t in self.words.tensors}

    def reads(self, name: str) -> bool:
        """Whether the recipe reads a name anywhere."""
        return _reads(self._asked, name)

    def reads_inside(self, name: str) -> bool:
        """Whether the attention itself reads a name, other than in what is made ready before."""
        given = tuple(replace(i, made=None) for i in self.recipe.inputs)
        return _reads(replace(self._asked, q=self.landed, k=None, inputs=given), name)

    @property
    def _asked(self) -> Recipe:
        """The recipe with what is left of the score."""
        return replace(self.recipe, score=self.rest or Num(0))

    def the_lists(self) -> Lists:
        assert self.lists is not None
        return self.lists


def _reads(recipe: Recipe, name: str) -> bool:
    parts = (*recipe.expressions(), recipe.kv_head)
    return any(n == Name(name) for e in parts for n in walk_expr(e))


@dataclass(frozen=True, slots=True)
class Step:
    """One rule at work: what it changes and why, in words."""

    title: str
    reason: str
    clause: str  # kind of the recipe's clause; several with ", "
    apply: Callable[[Module], Module]


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps in order, and how the target's arguments are filled."""

    steps: tuple[Step, ...]
    binding: Binding


Text = str | Callable[[Case], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """An edit of the module for one clause of the recipe, with its reason.

    `edit` makes it in the cases that `applies` picks. `after` names the rules that come before:
    those that write what this one reads, and the one that a reader should see first.
    """

    name: str
    title: Text
    reason: Text
    clause: str
    applies: Callable[[Case], bool]
    edit: Callable[[Module, Case], Module]
    after: tuple[str, ...] = ()

    def step(self, case: Case) -> Step:
        title, reason = (t if isinstance(t, str) else t(case) for t in (self.title, self.reason))
        return Step(title, reason, self.clause, lambda module: self.edit(module, case))


def ordered(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules in the one order that their `after`s allow, whatever the order they come in.

    Raises ValueError for a name that two rules have or none, a cycle, and an order left open.
    """
    left: dict[str, Rule] = {}
    for rule in rules:
        if left.setdefault(rule.name, rule) != rule:
            raise ValueError(f"two rules are called {rule.name}")
    for rule in left.values():
        for name in set(rule.after) - set(left):
            raise ValueError(f"{rule.name} comes after {name}: no such rule")
    out: list[Rule] = []
    while left:
        ready = sorted(name for name, rule in left.items() if not set(rule.after) & set(left))
        if len(ready) != 1:
            raise ValueError(
                f"which comes first: {', '.join(ready)}? Name one in another's `after`"
                if ready
                else f"a cycle: each of {', '.join(sorted(left))} comes after another"
            )
        out.append(left.pop(ready[0]))
    return tuple(out)
