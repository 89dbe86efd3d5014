"""One specialisation of a kernel beside its spec: what every check runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.cuir.nodes import Expr
from engine.gpu.worker.calls import Call, Launch, make_call
from engine.gpu.worker.cases import Case
from engine.gpu.worker.guarded import Layout
from engine.gpu.worker.rows import Tallies
from engine.gpu.worker.specrun import SpecRun
from engine.spec.oracle import output_as_bhnd
from engine.transfer.binding import Binding

Say = Callable[[str], None]


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

    def call(
        self, case: Case, layouts: dict[str, Layout] | None = None
    ) -> tuple[Call, dict[str, Tensor]]:
        """Arguments for a case, and the spec's inputs that they hold."""
        sizes = self.run.sizes(case, self.d, self.dv)
        inputs = self.run.make_inputs(case, sizes, self.dtype)
        return self.made(inputs, sizes, layouts), inputs

    def again(self, case: Case, inputs: dict[str, Tensor]) -> Call:
        sizes = self.run.sizes(case, self.d, self.dv)
        return self.made(inputs, sizes)

    def made(
        self,
        inputs: Mapping[str, Tensor],
        sizes: Mapping[str, int],
        layouts: dict[str, Layout] | None = None,
    ) -> Call:
        """The kernel's arguments for these inputs."""
        return make_call(
            self.launch, self.binding, inputs, sizes, self.dtype, layouts, self.constants
        )

    def o(self, call: Call) -> Tensor:
        """O as [B, Hq, Nq, Dv]."""
        return output_as_bhnd(self.run.recipe, call.o)

    def fits(self, case: Case) -> bool:
        return self.run.fits(self.run.sizes(case, self.d, self.dv))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        recipe = self.run.recipe
        found = (recipe.keep, recipe.score, recipe.weight, recipe.output_factor)
        return tuple(e for e in found if e is not None)

    def adapted(self, case: Case) -> Case | None:
        """The case, or its square where the spec demands Nq == Nk, or None where neither fits."""
        square = Case(case.B, case.Hq, case.Hkv, case.Nq, case.Nq, case.values, case.seed)
        equal = Case(case.B, case.Hq, case.Hq, case.Nq, case.Nq, case.values, case.seed)
        return next((c for c in (case, square, equal) if self.fits(c)), None)
