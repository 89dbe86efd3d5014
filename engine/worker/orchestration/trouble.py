"""Rows about what did not go as it should: builds, hangs, crashes, checks that were not run."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from typing import Any

from engine.worker.orchestration.building import Built, resources
from engine.worker.orchestration.checklist import CHECKS
from engine.worker.orchestration.children import Ended, last_line
from engine.worker.orchestration.sanitizer import TOOLS


def build_row(built: Built, key: str) -> dict[str, Any]:
    """What the compiler gave; its first errors where it failed."""
    row: dict[str, Any] = {
        "check": "build",
        "specialisation": key,
        "verdict": "pass" if built.ok else "fail",
        "cases": 1,
        "seconds": round(built.seconds, 3),
        "notes": {
            "compiler": built.compiler,
            "resources": [r for r in resources(built.log) if r["specialisation"] == key],
        },
    }
    if not built.ok:
        errors = [line for line in built.log.splitlines() if "error" in line.lower()]
        row["failures"] = (errors or [last_line(built.log)])[:3]
    return row


@dataclass(frozen=True)
class End:
    """How a verifying child ended: its last step, its last error, and whether that error is one of
    ours, which says nothing of the kernel."""

    ended: Ended | None
    step: str
    error: str = ""
    internal: bool = False


def trouble_of(
    end: End, rows: list[dict[str, Any]], key: str, silence: float
) -> dict[str, Any] | None:
    """A child that hung or crashed is a failed row that names the step it was at; one that ended
    with an internal error is a row that was not run."""
    ended, last, error = end.ended, end.step, end.error
    if ended is None or ended.ok:
        return None
    what = f"no word for {silence:g} s" if ended.silent else error or last_line(ended.output)
    have = {r["check"] for r in rows}
    check = next((c for c in CHECKS if last.startswith(c) and c not in have), "accuracy")
    if end.internal and not ended.silent:
        return not_run(check, key, f"internal error at {last}: {what}")
    return {
        "check": check, "specialisation": key, "verdict": "fail", "cases": 0, "seconds": 0.0,
        "failed": 1, "failures": [f"at {last}: {what}"],
    }  # fmt: skip


def not_run(check: str, key: str, reason: str) -> dict[str, Any]:
    return {"check": check, "specialisation": key, "verdict": "not_run", "cases": 0, "seconds": 0.0,
            "reason": reason}  # fmt: skip


def left_out(options: Namespace, key: str, trouble: str) -> list[dict[str, Any]]:
    """Rows of what a run with these options does not do, and of the timing that had `trouble`."""
    # Read in the app as well, where nobody has typed an option.
    told = "" if options.sanitize else "sanitizers were not asked for"
    told = "only times were asked for" if options.bench_only else told
    out = [not_run(tool, key, told) for tool in TOOLS if told]
    why = (trouble or "no shape was timed") if options.bench else "times were not asked for"
    return [*out, not_run("timed outputs", key, why)]
