"""The bench of rebases: it changes today's kernels, and nothing recorded is wrong."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.rebase import CHANGES, KERNELS, KINDS, RESULTS, SPECS, WRONG, Case, beside
from engine.service.session.workbench import find_kernel


def test_every_change_is_one_of_todays_kernels() -> None:
    for kernel in KERNELS:
        source = find_kernel(kernel).source
        made = {change.make(source) for change in CHANGES}
        assert len(made) == len(CHANGES) and source not in made


def test_what_is_recorded_is_right_or_asked() -> None:
    data = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = data["changes"]
    assert sorted(row["case"] for row in rows) == sorted(
        f"{change.name}: {SPECS[kernel, kind]} by {kind} on {kernel}"
        for change in CHANGES for kernel in KERNELS for kind in KINDS
    )  # fmt: skip
    for row in (*rows, *data["history"]):
        assert row["commit"] and row["machine"]["cpu"], row["case"]
        assert row["fate"] != WRONG and "expected" not in row, row["case"]
        assert bool(row["asked"]) == (row["fate"] == "asks")


def test_a_case_that_is_run_again_takes_its_old_row_s_place() -> None:
    old = [{"case": "a", "commit": "1"}, {"case": "b", "commit": "1"}]
    made = [{"case": "a", "commit": "2"}, {"case": "c", "commit": "2"}]
    cases = [Case(name, "kernel", "rules", None, Path("new.cu")) for name in "abc"]
    assert beside(old, made, cases) == [made[0], old[1], made[1]]
    assert beside(old, made, cases[1:]) == [old[1], made[1]], "a row of no case any more goes"
