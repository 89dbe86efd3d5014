"""The bench of adapted public kernels: what it records names the program, and no checkout."""

from __future__ import annotations

from pathlib import Path

from benchmarks.wild_adapt import RESULTS, ROOT, run


def test_commands_are_recorded_by_the_program_s_name(tmp_path: Path) -> None:
    code, _, said = run(["sessions", "show"], tmp_path)
    assert code == 2 and "cubridge sessions list" in said
    assert str(ROOT) not in said and "dev run" not in said


def test_no_record_names_a_checkout() -> None:
    for path in RESULTS.parent.glob("*.json"):
        assert "/dev run " not in path.read_text(encoding="utf-8"), path.name
    assert "`cubridge verify SESSION`" in RESULTS.read_text(encoding="utf-8")
