"""G2 refuses what is nearly right in the softmax's sum and after it."""

from __future__ import annotations

import pytest

from engine.gates.by_recipe import BY_RECIPE
from engine.gates.deck import Case
from engine.gates.running import run_deck
from tests.engine.gates.test_judge import edited, subject_of

SMALL = [Case(2, 4, 2, 5, 7), Case(1, 2, 1, 9, 150), Case(1, 2, 2, 3, 0, modes=("exact",))]
FIRST = "sum + exp2_approx((sinks_h - top * args.scale) * LOG2E)"
LSE = "max(sum, sinks_h) + log(1.0 + exp(-abs(sum - sinks_h)))"
# What is wrong: (text of the target, what stands there instead).
SINKS = {
    "the sink of another head": ("sinks[h]", "sinks[(h + 1) % args.Hq]"),
    "the sink of the key's head": ("sinks[h]", "sinks[h // (args.Hq // args.Hkv)]"),
    "counted twice": (FIRST, FIRST.replace("sum + ", "sum + 2.0 * ")),
    "in base 2": (FIRST, FIRST.replace("(sinks_h", "(sinks_h / LOG2E")),
    "scaled as a score": (FIRST, FIRST.replace("(sinks_h", "(sinks_h * args.scale")),
    "the row maximum left in it": (FIRST, "sum + exp2_approx(sinks_h * LOG2E)"),
    "the row maximum not scaled": (FIRST, FIRST.replace("top * args.scale", "top")),
    "left out of the sum": (FIRST, "sum"),
    "left out of LSE": (LSE, "sum"),
    "in LSE as a number": (LSE, "sum + sinks_h"),
    "LSE of the larger alone": (LSE, "max(sum, sinks_h)"),
    "an empty row's LSE": ("sinks_h if sum == -inf", "-inf if sum == -inf"),
    "added to the weights": ("l = row_reduce(l)", "l = row_reduce(l)\n    s_h = sinks[h]\n"
                             "    l = map(l, lambda x: x + s_h)"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", SINKS)
def test_a_wrong_sink_is_refused(wrong: str) -> None:
    subject = subject_of("sinks_window")
    failure, _ = run_deck(BY_RECIPE, edited(subject, *SINKS[wrong]), SMALL, lambda _: None)
    assert failure is not None


def test_a_right_sink_passes() -> None:
    failure, rows = run_deck(BY_RECIPE, subject_of("sinks_window"), SMALL, lambda _: None)
    assert failure is None
    assert all("LSE" in row for row in rows[:2])
