"""The options of run.py."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.worker.problems.problem_sizes import FORM, parse_shape

# Rivals by what is compiled or installed for them; `eager` is the spec's own function.
GROUPS = ("sdpa", "fa4", "flex", "fa3", "flashinfer", "eager")
ABOUT = "Build, verify and time this job, and more jobs beside it, on this machine's GPU."


def shape(text: str) -> str:
    """`text` where it is a shape, else argparse's own error."""
    try:
        parse_shape(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="run.py", description=ABOUT)
    out.add_argument("jobs", nargs="*", type=Path, help="more job folders (default: this one)")
    out.add_argument("--only", action="store_true", help="run the named jobs, not this folder's")
    out.add_argument("--out", type=Path, help="the result (default: result.json in the job)")
    out.add_argument("--fresh", action="store_true", help="forget the rows of earlier runs")
    out.add_argument("--no-bench", dest="bench", action="store_false", help="verify only")
    out.add_argument("--bench-only", action="store_true", help="time only; gives no verdict")
    out.add_argument("--no-sanitizer", dest="sanitize", action="store_false")
    out.add_argument("--quick", action="store_true", help="short deck for all; gives no pass")
    out.add_argument("--primary-only", action="store_true", help="one specialisation only")
    out.add_argument("--self-test", action="store_true", help="also show that mutants are rejected")
    out.add_argument("--lengths", type=int, nargs="+", help="sequence lengths to time")
    out.add_argument("--shapes", type=shape, nargs="+", metavar="SHAPE", help=f"or shapes: {FORM}")
    out.add_argument("--rivals", choices=GROUPS, nargs="+", help="those to time beside it")
    out.add_argument("--samples", type=int, help="timed calls per contestant")
    out.add_argument("--parallel", type=int, default=6, help="verifications beside each other")
    out.add_argument("--sanitizer-seconds", type=float, default=90.0)
    out.add_argument("--bench-seconds", type=float, default=120.0)
    return out
