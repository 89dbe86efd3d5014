"""Every reviewed fault is one of a statement that stands where it says."""

from __future__ import annotations

from benchmarks.sweep.mutants import function_at
from engine.lift import load_package
from tests.mutants.reviewed import REVIEWED, reason_for


def test_reviewed_statements_stand_in_their_functions() -> None:
    stand = set()
    for kernel in {kernel for kernel, *_ in REVIEWED}:
        source = load_package(kernel).source
        for number, line in enumerate(source.decode().splitlines(), 1):
            stand.add((kernel, function_at(source, number), line.strip()))
    assert {place[:3] for place in REVIEWED} <= stand


def test_a_reason_excuses_no_other_place() -> None:
    kernel, function, statement, fault, why = REVIEWED[-1]
    operator, change = fault.split(": ", 1)
    assert reason_for(kernel, function, statement, operator, change) == why
    assert reason_for(kernel, "flash_fwd", statement, operator, change) is None
    assert reason_for("flash_fwd_sm80", function, statement, operator, change) is None
