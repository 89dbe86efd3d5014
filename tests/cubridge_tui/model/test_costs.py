"""Predicted times in words: what is a difference, against whom, and for which card."""

from __future__ import annotations

from cubridge_tui.model.costs import (
    COST,
    KNOWN_ERROR,
    NONE,
    WAITING,
    Costs,
    bar_words,
    change_of,
    cost_line,
    costed,
    told,
)
from cubridge_tui.model.rows import Row, RowKind
from engine.service.views.costing import Cost, Where

WHERE = Where("NVIDIA A100", "A100", "S 8192 B 2", 0.5, False)
BOUND = "latency: the busiest unit, tensor cores, only 42%"


def costs(**more: Cost) -> Costs:
    return Costs(
        WHERE,
        {"expert": Cost(1000.0, 50.0, 2.0, BOUND), "all": Cost(600.0, 83.0, 1.02, BOUND), **more},
    )


def test_a_hunk_that_saves_time_says_how_much_against_whom() -> None:
    found = costs(h1=Cost(1200.0, 42.0, 2.0, BOUND))
    line = cost_line(found, "h1", ["h4"])
    assert "saves time: 600 us with all hunks, 1,200 us without it and h4 (+100%)" in line
    assert "the expert's 1,000 us" in line and "42 TFLOP/s of kept pairs" in line
    assert "2.00 pairs visited for each kept" in line and BOUND in line
    assert change_of(found, "h1") == "+100%"
    assert "1,200 us without it and the 7 hunks that need it" in cost_line(
        found, "h1", list("abcdefg")
    )
    faster = costs(h1=Cost(500.0, 100.0, 1.02, BOUND))
    assert "visited" not in cost_line(faster, "h1")  # as many as with all hunks
    assert "500 us without it (-17%)" in cost_line(faster, "h1")


def test_what_is_within_the_known_error_is_no_difference() -> None:
    found = costs(h2=Cost(600.0 * (1 + KNOWN_ERROR * 0.9), 80.0, 1.02, BOUND))
    assert "no difference that the model can tell, +8% without it" in cost_line(found, "h2")
    assert change_of(found, "h2") == "="
    words = bar_words(costs(now=Cost(990.0, 51.0, 1.9, BOUND)), "now")
    assert "≈ expert's time, 1.65 x all hunks' time" in words[0]
    assert all("A100" in w and "expert's" in w for w in words)
    assert words[2] == "A100 time ≈ expert's, 1.65 x all's "
    assert [len(w) for w in words] == sorted((len(w) for w in words), reverse=True)


def test_what_is_not_known_says_so() -> None:
    assert cost_line(NONE, "h1") == WAITING and change_of(NONE, "h1") == ""
    assert bar_words(NONE, "now") == () and told(NONE, "now") == []
    failed = costs(h3=Cost(problem="its launches do not follow"))
    assert cost_line(failed, "h3") == f"{COST}not predicted: its launches do not follow"
    no_card = Costs(None, {"expert": Cost(problem="no card of the arch sm_75")})
    assert "no card of the arch" in cost_line(no_card, "h1")


def test_the_page_names_card_shape_pairs_and_formula() -> None:
    lines = told(costs(now=Cost(700.0, 71.0, 1.0, BOUND)), "now")
    assert "NVIDIA A100, S 8192 B 2, 50.0% of the pairs kept" in lines[0]
    assert "2 (D + Dv) x kept pairs" in lines[1] and len(lines) == 5
    assert all(BOUND in line for line in lines[2:])


def test_costs_come_into_rows_that_are_there() -> None:
    rows = (
        Row("h1 Title", RowKind.HEAD, hunk="rules/h1"),
        Row(WAITING, RowKind.NOTE, hunk="rules/h1"),
        Row("why    it is there", RowKind.NOTE, hunk="rules/h1"),
        Row("a = 1", number=1),
    )
    now = costed(rows, {"rules/h1": "cost   12 us"})
    assert [r.text for r in now] == ["h1 Title", "cost   12 us", "why    it is there", "a = 1"]
