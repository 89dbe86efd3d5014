"""What all runners share: where a job writes its result, and how long it may take."""

from __future__ import annotations

from engine.errors import InputError

RESULT = "result.json"  # in the job's folder
JOB_SECONDS = 4 * 3600.0


def past_limit(who: str, seconds: float) -> InputError:
    """The error of a run that was ended because it took longer than it may."""
    hours = f" ({seconds / 3600:.1f} h)" if seconds >= 3600 else ""
    return InputError(
        f"{who} was ended at its limit of {seconds:g} s{hours}, before it gave a result",
        fix="verify less at a time (without times, or fewer shapes), or pack the job, "
        "run JOB/run.py where the GPU is and import the result: that has no limit",
    )
