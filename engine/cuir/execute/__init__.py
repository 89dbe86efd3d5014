"""Runs CuIR: whole programs, in two modes, under any schedule, and watches their order."""

from engine.cuir.execute.compiled.program import Coverage, Limits, Observer, Schedule, Visit
from engine.cuir.execute.schedules.explore import Exploration, explore
from engine.cuir.execute.schedules.run import Outcome, run_program
from engine.cuir.findings import Finding

__all__ = [
    "Coverage", "Exploration", "Finding", "Limits", "Observer", "Outcome", "Schedule", "Visit",
    "explore", "run_program",
]  # fmt: skip
