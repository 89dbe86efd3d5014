"""Predicted times as words: of the target as decided, and of each hunk by its absence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cubridge_tui.model.rows import Row, RowKind
from engine.cost.timeline.events import Timeline
from engine.service.views.costing import ALL, EXPERT, Cost, Question, Where

# Half of the measured rows are predicted within it (docs/cost.md): what is less is no difference.
KNOWN_ERROR = 0.09
COST = "cost   "  # how the row of a hunk begins
WAITING = f"{COST}is being predicted"
MOST_NAMED = 6  # hunks that a line lists; of more it says how many


@dataclass(frozen=True, slots=True)
class Costs:
    """What is known so far: `of` by `expert`, `all`, a hunk's id, or a target's hash; `timelines`
    by `expert` or a target's hash."""

    where: Where | None = None
    of: Mapping[str, Cost] = field(default_factory=dict)
    timelines: Mapping[str, Timeline] = field(default_factory=dict)

    def known(self, name: str) -> Cost | None:
        """A cost that is a number."""
        found = self.of.get(name)
        return found if found is not None and not found.problem else None


NONE = Costs()


def ratio(now: Cost, other: Cost) -> str:
    """`0.65 x`, or `≈` where the model cannot tell the two apart."""
    return "≈" if same(now, other) else f"{now.us / other.us:.2f} x"


def same(now: Cost, other: Cost) -> bool:
    """Whether two predictions are as near as the model's known error."""
    return abs(now.us / other.us - 1.0) <= KNOWN_ERROR


def cost_lines(question: Question | None, costs: Costs) -> dict[str, str]:
    """The line of each hunk of the proposal that is costed, by `proposal/hunk`."""
    if question is None:
        return {}
    name = question.proposal.id
    return {
        f"{name}/{hunk}": cost_line(costs, hunk, [h for h in others if h != hunk])
        for hunk, others in question.without.items()
    }


def cost_line(costs: Costs, hunk: str, others: Sequence[str] = ()) -> str:
    """What leaving a hunk out (and `others`, which need it) does to the predicted time."""
    every, expert, without = (costs.of.get(name) for name in (ALL, EXPERT, hunk))
    for cost in (without, every, expert):
        if cost is not None and cost.problem:
            return f"{COST}not predicted: {cost.problem}"
    if without is None or every is None or expert is None:
        return WAITING
    but = "without it"
    if others:
        many = f"the {len(others)} hunks that need it"
        but += f" and {', '.join(others) if len(others) <= MOST_NAMED else many}"
    if same(without, every):
        change = round(100 * (without.us / every.us - 1))
        return f"{COST}no difference that the model can tell, {change:+}% {but}"
    visits = f"{without.visited:.2f}"
    more = f", {visits} pairs visited for each kept" if visits != f"{every.visited:.2f}" else ""
    return (
        f"{COST}{'saves' if without.us > every.us else 'takes'} time: {every.us:,.0f} us with all "
        f"hunks, {without.us:,.0f} us {but} ({change_of(costs, hunk)}), the expert's "
        f"{expert.us:,.0f} us; {but} {without.tflops:.0f} TFLOP/s of kept pairs{more}, "
        f"bound by {without.bound}"
    )


def change_of(costs: Costs, hunk: str) -> str:
    """`+87%`: the time without a hunk against all accepted; `=` where it is no difference, empty
    where it is not known."""
    every, without = costs.known(ALL), costs.known(hunk)
    if every is None or without is None:
        return ""
    return "=" if same(without, every) else f"{100 * (without.us / every.us - 1):+.0f}%"


def bar_words(costs: Costs, target: str) -> tuple[str, ...]:
    """The stage bar's words for the target with this hash, from long to short; empty while they
    are not known."""
    now, every, expert = costs.known(target), costs.known(ALL), costs.known(EXPERT)
    if now is None or expert is None or costs.where is None:
        return ()
    against = f"{ratio(now, expert)} expert's time"
    both, card = against, costs.where.name
    short = f"{card} {against} "
    if every is not None:
        both += f", {ratio(now, every)} all hunks' time"
        short = f"{card} time {ratio(now, expert)} expert's, {ratio(now, every)} all's "
    return (
        f"predicted on {card} {now.us:,.0f} us, {both}, {now.tflops:.0f} TFLOP/s ",
        f"{card} {now.us:,.0f} us, {both} ",
        short,
        f"{card} {against} ",
    )


def told(costs: Costs, target: str) -> list[str]:
    """What is predicted, for what and how, as lines to read."""
    where = costs.where
    if where is None:
        return []
    pairs = f"{100 * where.kept:.1f}% of the pairs kept"
    pairs += ", by example values of the inputs that the mask reads" if where.examples else ""
    lines = [
        f"predicted, not measured: {where.card}, {where.shape}, {pairs}",
        "    by the cost model (docs/cost.md), TFLOP/s = 2 (D + Dv) x kept pairs / time; "
        f"differences up to {100 * KNOWN_ERROR:.0f}% are within its known error (≈)",
    ]
    whose = {target: "as decided", ALL: "all accepted", EXPERT: "the expert's"}
    for name, words in whose.items():
        found = costs.known(name)
        if found is not None and not (name == ALL and found == costs.known(target)):
            lines.append(
                f"    {words:<12}  {found.us:,.0f} us, {found.tflops:.0f} TFLOP/s, "
                f"{found.visited:.2f} pairs visited for each kept, bound by {found.bound}"
            )
    return lines


def costed(rows: Sequence[Row], lines: Mapping[str, str]) -> tuple[Row, ...]:
    """The rows with each hunk's cost as it is known now; `lines` by `proposal/hunk`."""
    return tuple(
        replace(row, text=lines[row.hunk])
        if row.kind is RowKind.NOTE and row.hunk in lines and row.text.startswith(COST)
        else row
        for row in rows
    )
