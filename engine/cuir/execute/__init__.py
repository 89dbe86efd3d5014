"""Runs CuIR: whole programs, in two modes, under any schedule, and watches their order."""

from engine.cuir.execute.compiled.program import Coverage, Limits, Schedule
from engine.cuir.execute.schedules.run import Outcome, run_program
from engine.cuir.findings import Finding

__all__ = ["Coverage", "Finding", "Limits", "Outcome", "Schedule", "run_program"]
