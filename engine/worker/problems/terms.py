"""On what terms a kernel is called: which sizes and tensors its launcher takes.

A kernel of ours takes every size that its specs have, and any strides. Someone's own launcher takes
what it was seen to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.cuir.nodes import Expr
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.scalar import evaluate
from engine.worker.problems.problem_sizes import Case

MOST_PAIRS = 1 << 27  # of all heads of a case, where it was made to fit


@dataclass(frozen=True)
class Terms:
    """What a launcher takes.

    `step`: lengths are multiples of it, and no less. `requires` holds of all sizes. `theirs` is
    true of someone's own launcher: tensors are contiguous, LSE of a row without a key is either
    infinity, what lies in V under the mask is a number, and a graph may not take it.
    """

    step: int = 1
    requires: tuple[Expr, ...] = ()
    theirs: bool = False

    def allow(self, sizes: Mapping[str, int]) -> bool:
        if any(sizes[n] % self.step for n in ("Nq", "Nk")):
            return False
        if self.theirs and not (sizes["Nq"] and sizes["Nk"]):
            return False
        return all(bool(evaluate(e, dict(sizes))) for e in self.requires)

    def rounded(self, case: Case) -> Case:
        """The case with lengths that are whole steps."""
        if not self.theirs:
            return case
        n_q, n_k = (max(1, -(-n // self.step)) * self.step for n in (case.Nq, case.Nk))
        return replace(case, Nq=n_q, Nk=n_k)

    def fitted(self, cases: Iterable[Case | None]) -> tuple[Case, ...]:
        """Cases that were made to fit: each once, and none that is too large by it."""
        each = {(*c.sizes.values(), c.values): c for c in cases if c is not None}
        return tuple(c for c in each.values() if c.B * c.Hq * c.Nq * c.Nk <= MOST_PAIRS)

    def to_json(self) -> dict[str, Any]:
        return {"step": self.step, "requires": [print_expr(e) for e in self.requires]}

    @staticmethod
    def of(data: Mapping[str, Any] | None) -> Terms:
        """Of a job's manifest; None is a kernel of ours."""
        if data is None:
            return OURS
        return Terms(int(data["step"]), tuple(map(parse_expr, data["requires"])), True)


OURS = Terms()
