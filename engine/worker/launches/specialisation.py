"""One specialisation of a kernel beside its spec: what every check runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from engine.cuir.nodes import Expr, Num
from engine.errors import SpecError
from engine.spec.decks.extreme_biases import biases
from engine.spec.reference.oracle import output_as_bhnd
from engine.transfer.binding import SLOTS, Binding
from engine.worker.launches.guard_bands import Layout
from engine.worker.launches.guarded_call import Call, Launch, make_call
from engine.worker.launches.result_rows import Tallies
from engine.worker.problems import problem_sizes as deck
from engine.worker.problems.problem_sizes import Case
from engine.worker.problems.specrun import SpecRun
from engine.worker.problems.terms import OURS, Terms

Say = Callable[[str], None]
LINEAR_CASE = Case(1, 2, 1, 37, 43, seed=7400)
LINEAR = 1e-9  # of the row's largest element, in float64


@dataclass
class Subject:
    """One specialisation of a kernel beside its spec."""

    key: str
    run: SpecRun
    binding: Binding
    launch: Launch
    dtype: torch.dtype
    d: int
    dv: int
    short: bool
    tallies: Tallies
    say: Say
    constants: Mapping[str, int] = field(default_factory=dict)
    fast_tanh: bool = False  # the kernel takes the hardware's approximate tanh
    section: int = 1  # heads that the kernel takes in turn before the next ones
    terms: Terms = OURS
    _linear: bool | None = None

    def call(
        self, case: Case, layouts: dict[str, Layout] | None = None
    ) -> tuple[Call, dict[str, Tensor]]:
        """Arguments for a case, and the spec's inputs that they hold."""
        sizes = self.run.sizes(case, self.d, self.dv)
        inputs = self.run.make_inputs(case, sizes, self.dtype)
        return self.made(inputs, sizes, layouts, case.slots), inputs

    def again(self, case: Case, inputs: dict[str, Tensor]) -> Call:
        sizes = self.run.sizes(case, self.d, self.dv)
        return self.made(inputs, sizes)

    def made(
        self,
        inputs: Mapping[str, Tensor],
        sizes: Mapping[str, int],
        layouts: dict[str, Layout] | None = None,
        slots: int | None = None,
    ) -> Call:
        """The kernel's arguments for these inputs."""
        return make_call(
            self.launch, self.binding, inputs, sizes, self.dtype, layouts, self.constants,
            SLOTS if slots is None else slots,
        )  # fmt: skip

    def o(self, call: Call) -> Tensor:
        """O as [B, Hq, Nq, Dv]."""
        return output_as_bhnd(self.run.signature, call.o)

    def fits(self, case: Case) -> bool:
        sizes = self.run.sizes(case, self.d, self.dv)
        return self.run.fits(sizes) and self.terms.allow(sizes)

    def of_deck(self, cases: tuple[Case, ...]) -> tuple[Case, ...]:
        """The cases as the launcher takes them."""
        return self.terms.fitted(map(self.adapted, cases)) if self.terms.theirs else cases

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Whose integers the deck goes around: the recipe's, else all that the spec's text has."""
        recipe = self.run.recipe
        if recipe is None:
            return tuple(map(Num, self.run.integers()))
        return recipe.expressions()

    @property
    def accuracy_cases(self) -> tuple[Case, ...]:
        """The deck of the accuracy checks."""
        return self.of_deck(deck.accuracy_deck(self.expressions, self.short, self.section))

    @property
    def repeat_case(self) -> Case | None:
        """What is launched again and again; None where the spec allows nothing like it."""
        return self.adapted(deck.past_section(deck.REPEAT_CASE, self.section))

    @property
    def list_cases(self) -> tuple[Case, ...]:
        """The cases of tile lists; none where the kernel keeps none."""
        if self.binding.workspace is None:
            return ()
        tile = self.constants.get("BN")
        return tuple(
            next((c for c in pair if self.fits(c)), pair[0])
            for pair in zip(deck.list_deck(tile, False), deck.list_deck(tile, True), strict=True)
        )

    @property
    def extreme_cases(self) -> tuple[Case, ...]:
        """A bias at the ends of its type; none where a softmax's score adds none."""
        if self.run.recipe is None or not biases(self.run.recipe):
            return ()
        tried = map(self.of_deck, map(deck.extremes, (False, True)))
        found = next((d for d in tried if d and self.fits(d[0])), ())
        return found[:4] if self.short else found

    @property
    def approximate(self) -> bool:
        """Whether the score goes through the hardware's tanh, which has a relative error of 2^-11:
        the spec asks for tanh or sigmoid, and this kernel takes that instruction for it."""
        return self.fast_tanh and self.run.approximate

    @property
    def linear(self) -> bool:
        """Whether O is a sum of rows of V, so that one-hot V shows the weights.

        A recipe that leaves the output alone says so; else the function is tried on a small case.
        """
        if self.run.recipe is not None and not self.run.recipe.changes_output:
            return True
        if self._linear is None:
            self._linear = linear_in_v(self.run, self.adapted(LINEAR_CASE), self.d, self.dv)
        return self._linear

    @property
    def zeros_show_pairs(self) -> bool:
        """Whether O of one-hot V is 0 exactly where the recipe keeps no pair, on a small case."""
        case = self.adapted(LINEAR_CASE)
        if self.run.recipe is None or case is None:
            return False
        inputs = self.run.make_inputs(case, self.run.sizes(case, self.d, self.dv), torch.float32)
        try:
            shown = self.run.weights(inputs) != 0
        except SpecError:
            return False
        read = self.run.expected(inputs)
        return bool(((shown == read.keep) | read.empty[..., None]).all())

    def adapted(self, case: Case) -> Case | None:
        """The case in whole steps of the launcher's, or its square where Nq == Nk is demanded, or
        None where neither fits."""
        fixed: dict[str, Any] = dict(self.run.signature.fixed)
        case = replace(case, **{n: size for n, size in fixed.items() if n in case.sizes})
        case = self.terms.rounded(case)
        square = replace(case, Nk=case.Nq)
        equal = replace(square, Hkv=case.Hq)
        return next((c for c in (case, square, equal) if self.fits(c)), None)


def linear_in_v(run: SpecRun, case: Case | None, d: int, dv: int) -> bool:
    """Whether the spec's function of V + 2 W is that of V plus twice that of W, in float64."""
    if case is None:
        return False
    inputs = run.make_inputs(case, run.sizes(case, d, dv), torch.float32)
    v = run.canonical(inputs, "v")
    w = torch.roll(v, 1, 2) * 0.75 - 0.25
    try:
        of_v, of_w, of_both = (
            run.exact(run.replaced(inputs, "v", x)) for x in (v, w, v.double() + 2 * w.double())
        )
    except SpecError:
        return False
    apart = (of_both - of_v - 2 * of_w).abs()
    scale = of_both.abs().nan_to_num().amax(-1, keepdim=True).clamp(min=1e-300)
    return bool((apart / scale).nan_to_num().max() <= LINEAR)
