"""The bench of the engine's budgets: percentiles; rows are recorded one by one, or never."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import engine_budgets as bench

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "engine_budgets.py"


@pytest.fixture(autouse=True)
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Results go to a file of the test's own."""
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "engine.json")


def test_the_percentile_of_twenty_is_the_second_largest() -> None:
    seconds = [float(n) for n in range(20, 0, -1)]
    assert bench.nearest_rank(seconds, 0.95) == 19.0
    assert bench.nearest_rank([*seconds, 21.0], 0.95) == 20.0
    assert bench.nearest_rank(seconds, 0.5) == 10.0
    assert bench.nearest_rank([3.0], 0.95) == 3.0


def test_every_budget_of_the_engine_has_a_row() -> None:
    budgets = {name: b.budget for name, b in bench.BENCHES.items() if name != "version"}
    assert budgets == {
        "lift": 0.5, "recipe-cold": 8.0, "recipe-warm": 1.0, "rules": 0.5, "gates": 10.0,
        "gates-lists": 10.0, "nvcc-sm80": 15.0, "nvcc-sm90a": 40.0, "adapt-cold": 60.0,
        "adapt-cached": 10.0, "save": 0.05, "open": 0.5,
    }  # fmt: skip


def test_a_row_takes_the_place_of_its_earlier_one_and_of_no_other() -> None:
    def row(name: str, p95: float) -> bench.Row:
        return bench.Row(name, name, 20, p95, p95, p95, 1.0, {"steal_percent": 0.0})

    for name, p95 in (("save", 0.5), ("lift", 0.25), ("save", 2.0)):
        bench.record(row(name, p95), {"commit": "abc"})
    rows = json.loads(bench.RESULTS.read_text())["rows"]
    assert [(r["name"], r["p95"], r["holds"]) for r in rows] == [
        ("lift", 0.25, True),
        ("save", 2.0, False),
    ]
    assert rows[0]["machine"] == {"commit": "abc"}


def test_a_row_says_what_the_machine_did_meanwhile() -> None:
    found = bench.measure("recipe-warm", 1)
    assert found.name == "recipe-warm" and found.runs == 1 and 0 < found.median == found.p95
    assert set(found.around) == {"load_before", "load_after", "steal_percent", "idle_percent"}
    assert 0 <= found.around["steal_percent"] <= 100


def test_fewer_than_twenty_runs_are_never_recorded() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", "lift", "--runs", "2", "--record"],
        cwd="/", env=dict(os.environ), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "at least 20 runs" in done.stderr
