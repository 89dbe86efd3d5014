"""What a check found: one row of the result, with what it measured."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

PASS, FAIL, NOT_RUN = "pass", "fail", "not_run"
MOST_FAILURES = 6


@dataclass
class Tally:
    """A check in progress: cases seen, what failed, the largest share of what is allowed."""

    check: str
    key: str
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    failed: int = 0
    worst: float | None = None
    worst_case: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def case(self) -> None:
        self.cases += 1

    def withdraw(self, why: str) -> None:
        """A case that turned out not to be one that can be judged: it does not count."""
        self.cases -= 1
        self.count(why, 1)

    def fail(self, what: str) -> None:
        self.failed += 1
        if len(self.failures) < MOST_FAILURES:
            self.failures.append(what)

    def picture(
        self, case: object, at: tuple[int, int, int], what: str, got: Tensor, want: Tensor
    ) -> None:
        """Keep |got - want| [rows, columns] of the first failing case, at a batch, head and row."""
        from engine.spec.reference.error_grid import error_grid  # torch, with what is compared

        if "errors" not in self.notes:
            place = dict(zip(("b", "h", "i"), at, strict=True))
            self.notes["errors"] = place | {"case": str(case), what: error_grid(got, want)}

    def measure(self, share: float, case: object) -> None:
        """`share` of the allowed error; NaN counts as infinite."""
        share = math.inf if math.isnan(share) else share
        if self.worst is None or share > self.worst:
            self.worst, self.worst_case = share, str(case)

    def note(self, **what: Any) -> None:
        self.notes |= what

    def count(self, name: str, number: int) -> None:
        self.notes[name] = self.notes.get(name, 0) + number

    def row(self) -> dict[str, Any]:
        """The row. A check that saw no case has not run: it can never pass by default."""
        verdict = FAIL if self.failed else PASS if self.cases else NOT_RUN
        out: dict[str, Any] = {
            "check": self.check, "specialisation": self.key, "verdict": verdict,
            "cases": self.cases, "seconds": round(self.seconds, 3),
        }  # fmt: skip
        if self.worst is not None:
            worst = self.worst if math.isfinite(self.worst) else str(self.worst)
            out |= {"worst": worst, "worst_case": self.worst_case}
        if self.failed:
            out |= {"failed": self.failed, "failures": self.failures}
        if not self.cases and not self.failed:
            out["reason"] = self.notes.pop("reason", "no case of the deck applies")
        if self.notes:
            out["notes"] = dict(self.notes)
        return out


class Tallies:
    """One tally per check of one specialisation."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._tallies: dict[str, Tally] = {}

    def __getitem__(self, check: str) -> Tally:
        if check not in self._tallies:
            self._tallies[check] = Tally(check, self.key)
        return self._tallies[check]

    def open(self, check: str) -> Tally:
        """There is a row of this check from now on, if only to say that no case of it was run."""
        return self[check]

    @contextmanager
    def timed(self, check: str) -> Iterator[Tally]:
        tally = self[check]
        begin = time.monotonic()
        try:
            yield tally
        finally:
            tally.seconds += time.monotonic() - begin

    def rows(self, checks: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        order = list(checks) if checks is not None else list(self._tallies)
        return [self._tallies[c].row() for c in order if c in self._tallies]
