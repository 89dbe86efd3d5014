"""G1 and G2 on the CPU: run a module in both modes and compare it with the spec itself.

Exact mode (every value float64) judges the algebra: O, LSE and the keep set. Typed mode judges the
rounding by FlashAttention's rule: the error is at most twice that of the spec run in low precision
by PyTorch, plus rounding. The comparison never uses the kernel's own index or mask code: the
expected values come from the spec's function.

Runs in the torch child only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.cuir.check import check
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.gates.deck import quick_deck
from engine.spec import Recipe, recipe_from_json
from engine.transfer.binding import Binding

EXACT_TOLERANCE = 1e-10  # of each row's largest magnitude
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a gate fails: in words, with the op and a counterexample where there is one."""

    reason: str
    op: str | None = None
    counterexample: Mapping[str, Any] | None = None

    def details(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self.op is not None:
            out["op"] = self.op
        if self.counterexample is not None:
            out["counterexample"] = dict(self.counterexample)
        return out


def judge_json(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """{"module", "recipe", "binding", "spec", "options"} -> {"ok", "reason", "details", "seconds"}."""
    begin = time.monotonic()
    module = parse_module(payload["module"], "target.cuir")
    recipe = recipe_from_json(payload["recipe"])
    binding = Binding.from_json(payload["binding"])
    failure, done = judge(
        module, recipe, binding, Path(payload["spec"]), payload.get("options") or {}, report
    )
    details: dict[str, Any] = {"cases": done}
    if failure is not None:
        details |= failure.details()
    return {
        "ok": failure is None,
        "reason": failure.reason if failure is not None else f"{len(done)} runs equal the spec",
        "details": details,
        "seconds": time.monotonic() - begin,
    }


def judge(
    module: Module,
    recipe: Recipe,
    binding: Binding,
    spec: Path,
    options: Mapping[str, Any],
    report: Report,
) -> tuple[Failure | None, list[dict[str, Any]]]:
    """The first failure (or None), and what every run measured."""
    static = check(module)
    if static:
        return Failure(f"{static[0].message}", op=_op(static[0].path)), []
    done: list[dict[str, Any]] = []
    deck = quick_deck((recipe.keep, recipe.score))
    for number, case in enumerate(deck):
        report(f"{number + 1} of {len(deck)}: {case}")
        for failure, row in _run_case(module, recipe, binding, spec, options, case, seed=number):
            done.append(row)
            if failure is not None:
                return failure, done
    return None, done


def _op(path: tuple[str | int, ...]) -> str:
    return "/".join(map(str, path))
