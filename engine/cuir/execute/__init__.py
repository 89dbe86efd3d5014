"""Runs CuIR: whole programs, in two modes, under any schedule, and watches their order."""

from engine.cuir.execute.program import Coverage, Limits, Observer, Schedule, Visit
from engine.cuir.execute.run import Outcome, run_program
from engine.cuir.findings import Finding

__all__ = [
    "Coverage", "Finding", "Limits", "Observer", "Outcome", "Schedule", "Visit", "run_program",
]  # fmt: skip
