"""What headless commands tell while they run."""

from __future__ import annotations

import pytest

from cubridge_tui.headless import narrator


def test_the_number_of_cases_is_told_and_not_each_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell = narrator(quiet=False)
    for said in ("G1: 2 cases to run", "G1: case 1 of 2: B 1", "case 2: N 64: O off by 1", "done"):
        tell(said)
    narrator(quiet=True)("G1: 2 cases to run")
    assert capsys.readouterr().err == "  G1: 2 cases to run\n  done\n"
