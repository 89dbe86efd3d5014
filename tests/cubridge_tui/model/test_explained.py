"""What a hunk says of itself under its head."""

from __future__ import annotations

from cubridge_tui.model.explained import lines_of
from engine.types import Hunk, Origin


def test_a_reason_that_an_earlier_hunk_gives_is_only_named() -> None:
    reason = "50 tanh(u) = 100 sigmoid(2 u) - 50; it costs one MUFU"
    hunk = Hunk("h4", "cap the score", reason, "", "", "x = 1", ("a",), Origin.RULES)
    assert f"why     {reason}" in lines_of(hunk)
    assert [line for line in lines_of(hunk, group="h3") if line.startswith("why")] == [
        "why     as h3"
    ]
