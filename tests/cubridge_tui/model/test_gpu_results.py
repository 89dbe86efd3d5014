"""What a GPU found, as a table, bars and a picture: nothing invented, nothing obeyed."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from cubridge_tui.model.gpu_results import bars, contestants, picture, table
from engine.report.picture import svg
from engine.types import Gate, Verdict, VerdictKind
from tests.cubridge_tui.made import gpu_details


def verdict(**details: object) -> Verdict:
    return Verdict(Gate.G4, VerdictKind.FAIL, "lse: row [/] 3", 1.0, (), gpu_details() | details)


def text(rows: object) -> str:
    return "\n".join(r.text for r in rows)  # type: ignore[attr-defined]


def test_the_table_says_card_checks_and_reasons() -> None:
    chart = table(verdict())
    shown = text(chart.rows)
    assert "NVIDIA H100 80GB HBM3, sm_90, driver 580.1" in shown
    assert "row 3 is off [/]" in shown and "0.31 of what is allowed" in shown
    assert len(chart.rows) == len(chart.spans)
    assert "has not run" in text(table(None).rows)


@pytest.mark.parametrize("width", [40, 70, 130, 300])
def test_bars_are_to_scale_and_fit(width: int) -> None:
    chart = bars(gpu_details(), width)
    shown = text(chart.rows)
    ours = next(r.text for r in chart.rows if r.text.startswith("CuBridge"))
    rival = next(r.text for r in chart.rows if r.text.startswith("FlexAttention"))
    assert ours.count("█") > rival.count("▒") > 0
    assert abs(rival.count("▒") / ours.count("█") - 272.8 / 352.0) < 0.15
    assert "ours is 1.29 x" in rival and "61% of the floor" in ours
    assert "\x1b" not in shown and "␛[2J" in shown
    assert "TFLOP/s = " in shown and "CUDA events" in shown
    for row, spans in zip(chart.rows, chart.spans, strict=True):
        assert all(0 <= s.start <= s.end <= len(row.text) for s in spans)


def test_what_was_not_timed_has_a_reason_and_no_bar() -> None:
    found = contestants(gpu_details())
    (members,) = found.values()
    assert members[0].name == "CuBridge" and members[-1].reason
    assert text(bars({}, 100).rows) == (
        "nothing was timed: bars of TFLOP/s beside the rivals stand here after a run with times"
    )
    assert "has not run on these bytes" in text(table(None).rows)


def test_odd_rows_do_no_harm() -> None:
    odd = {
        "times": [{"case": 3, "ms": "fast"}, {"name": None, "ms": True, "tflops": 1}, "x"],
        "checks": [{"verdict": None}, 7], "self_test": None, "device": [], "state": "cut off",
    }  # fmt: skip
    assert bars(odd, 80).rows and table(verdict(**odd)).rows
    assert "did not end: cut off" in text(table(verdict(**odd)).rows)


def test_the_picture_is_whole_and_holds_no_control_characters() -> None:
    made = picture("a <b> & [/] \x1b[2J", gpu_details())
    drawn = svg(made)
    root = ET.fromstring(drawn)
    words = "".join(root.itertext())
    assert "a <b> & [/] ␛[2J" in words and "352.0 TFLOP/s" in words
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 3
    assert "\x1b" not in drawn
