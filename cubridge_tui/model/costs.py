"""What decisions do, as words: predicted times, of the target as decided and of each hunk by its
absence; and what the target computes without a hunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cubridge_tui.model.rows import Row, RowKind
from engine.cost.timeline.events import Timeline
from engine.gates.outcome import Trial
from engine.service.views.costing import ALL, EXPERT, Cost, Question, Where
from engine.spec.recipes.kept_pairs import EXAMPLES

# Half of what was measured is predicted within it (docs/cost.md, a test): what is less is told as
# no difference.
NO_DIFFERENCE = 0.08
HALF = f"half of what was measured is predicted within ±{100 * NO_DIFFERENCE:.0f}%"
# How the rows of a hunk begin.
REJECT, COST, RULES, MODEL = "reject  ", "cost    ", "rule    ", "model   "
WAITING = f"{COST}is being predicted"


@dataclass(frozen=True, slots=True)
class Costs:
    """What is known so far: `of` by `expert`, `all`, a hunk's id, a rule's title, or a target's
    hash; `timelines` by `expert` or a target's hash; `tried`, the targets without a hunk or a rule,
    by the hunk's id or the rule's title."""

    where: Where | None = None
    of: Mapping[str, Cost] = field(default_factory=dict)
    timelines: Mapping[str, Timeline] = field(default_factory=dict)
    tried: Mapping[str, Trial] = field(default_factory=dict)

    def known(self, name: str) -> Cost | None:
        """A cost that is a number."""
        found = self.of.get(name)
        return found if found is not None and not found.problem else None

    def whole(self, hunk: str) -> bool:
        """Whether all is known of a hunk that will be."""
        return hunk in self.of and hunk in self.tried

    def wrong(self, hunk: str) -> bool:
        """Whether the target without a hunk is known to be wrong."""
        found = self.tried.get(hunk)
        return found is not None and bool(found.fault)

    def breaks(self, hunk: str) -> bool:
        """Whether the target without a hunk is known to be no program."""
        found = self.tried.get(hunk)
        return found is not None and not found.checks


NONE = Costs()


def ratio(now: Cost, other: Cost) -> str:
    """`0.65 x`, or `≈` where the model cannot tell the two apart."""
    return "≈" if same(now, other) else f"{now.us / other.us:.2f} x"


def same(now: Cost, other: Cost) -> bool:
    """Whether two predictions are nearer than `NO_DIFFERENCE`."""
    return abs(now.us / other.us - 1.0) <= NO_DIFFERENCE


def cost_lines(question: Question | None, costs: Costs) -> dict[str, tuple[str, ...]]:
    """The lines of each hunk of the proposal that is costed, by `proposal/hunk`. The first one says
    what all the numbers are for."""
    if question is None:
        return {}
    lines = {}
    titles = {h.id: h.title for h in question.proposal.hunks}
    at_first = question.at_first() if question.tries else {}
    for number, (hunk, gone) in enumerate(question.without.items()):
        others = [h for h in gone if h != hunk]
        # A hunk that several rules wrote does not say whose hunks "its" are.
        rules = [
            rule_words(costs, title, question.rules[title], alone=title == titles[hunk])
            for title in at_first.get(hunk, ())
        ]
        lines[f"{question.proposal.id}/{hunk}"] = (
            *([reject_line(costs, hunk, others)] if question.tries else []),
            cost_line(costs, hunk, others),
            *([f"{RULES}{'; '.join(rules)}"] if rules else []),
            *([model_line(costs)] if number == 0 else []),
        )
    return lines


def reject_line(costs: Costs, hunk: str, others: Sequence[str] = ()) -> str:
    """What leaving a hunk out (and `others`, which need it) does to the result, as far as tried."""
    found, but = costs.tried.get(hunk), _without(others)
    if found is None:
        return f"{REJECT}is being tried"
    if found.problem:
        return f"{REJECT}not tried: {found.problem}"
    if not found.checks:
        return f"{REJECT}no valid program {but}: {found.fault}"
    if found.fault:
        return f"{REJECT}wrong {but}: {found.fault}"
    every, without = costs.known(ALL), costs.known(hunk)
    speed = ""
    if every is not None and without is not None:
        change = round(100 * (without.us / every.us - 1))
        word = f"{abs(change)}% {'slower' if change > 0 else 'faster'}"
        speed = "" if same(without, every) else f", {word}"
    return (
        f"{REJECT}still right {but} where it was tried, in float64 at {found.sizes} (queries x "
        f"keys){speed}"
    )


def cost_line(costs: Costs, hunk: str, others: Sequence[str] = ()) -> str:
    """What leaving a hunk out (and `others`, which need it) does to the predicted time; what it
    costs to have it, where it has to be there."""
    every, expert, without = (costs.of.get(name) for name in (ALL, EXPERT, hunk))
    for cost in (without, every, expert):
        if cost is not None and cost.problem:
            return f"{COST}not predicted: {cost.problem}"
    if without is None or every is None or expert is None:
        return WAITING
    but = _without(others)
    if costs.breaks(hunk):
        return f"{COST}not told: there is no program {but}"
    where = "" if costs.where is None else f" ({costs.where.name}, {costs.where.shape})"
    both = f"{every.us:,.0f} us with all hunks, {without.us:,.0f} us {but}{where}"
    change = 100 * (without.us / every.us - 1)
    if same(without, every):
        words = "no time that the model can tell" if costs.wrong(hunk) else f"as fast {but}"
        return f"{COST}{words} (±{100 * NO_DIFFERENCE:.0f}%): {every.us:,.0f} us{where}"
    rates = f"{every.tflops:.0f} TFLOP/s of kept pairs with all, {without.tflops:.0f} without"
    visits = [f"{c.visited:.2f}" for c in (every, without)]
    if visits[0] != visits[1]:
        rates += f"; pairs visited for each kept {visits[0]} and {visits[1]}"
    if change > 0:
        return f"{COST}saves time: {both}, {change:+.0f}%; {rates}; bound then by {without.bound}"
    share = f"{100 * (1 - without.us / every.us):.0f}% of the time"
    words = f"takes {share}, and has to" if costs.wrong(hunk) else f"takes {share}"
    return f"{COST}{words}: {both}; {rates}"


def rule_words(costs: Costs, title: str, gone: Sequence[str], *, alone: bool) -> str:
    """What leaving out all hunks of a rule does; `alone`: at a hunk that is of no other rule."""
    found, every, without = costs.tried.get(title), costs.known(ALL), costs.known(title)
    whose = "its hunks" if alone else f'the hunks of "{title}"'
    begin = f"with all of {whose} rejected ({_ranges(gone)}): "
    if found is None:
        return f"{begin}is being tried"
    wrong = "wrong: " if found.checks else "no valid program: "
    result = found.problem or "still right where it was tried"
    result = f"{wrong}{found.fault}" if found.fault else result
    if every is None or without is None or not found.checks:
        return begin + result
    time = f"{without.us:,.0f} us instead of {every.us:,.0f}"
    told = f"as fast (±{100 * NO_DIFFERENCE:.0f}%)" if same(without, every) else time
    return f"{begin}{result}; {told}"


def model_line(costs: Costs) -> str:
    """What the costs of all hunks are for, and what the expert's time is of."""
    every, expert, where = costs.known(ALL), costs.known(EXPERT), costs.where
    if every is None or expert is None or where is None:
        return f"{MODEL}is being asked"
    return (
        f"{MODEL}{where.card}, {where.shape}, {_pairs(where)}; the expert's kernel, before any "
        f"hunk and of its own function, {expert.us:,.0f} us; with all hunks {every.us:,.0f} us, "
        f"{every.tflops:.0f} TFLOP/s of kept pairs, {every.visited:.2f} pairs visited for each "
        f"kept; {HALF}: what differs by less is told as no difference"
    )


def _without(others: Sequence[str]) -> str:
    """`without it and h7, h13-h15`."""
    return f"without it and {_ranges(others)}" if others else "without it"


def _ranges(hunks: Sequence[str]) -> str:
    """`h7, h13-h15`: what follows one another as one."""
    numbers = [int(hunk.removeprefix("h")) for hunk in hunks]
    told: list[list[int]] = []
    for number in numbers:
        if told and number == told[-1][-1] + 1:
            told[-1].append(number)
        else:
            told.append([number])
    return ", ".join(f"h{n[0]}-h{n[-1]}" if n[1:] else f"h{n[0]}" for n in told)


def _pairs(where: Where) -> str:
    words = f"{100 * where.kept:.1f}% of the pairs kept"
    return words + (f", by {EXAMPLES}" if where.examples else "")


def change_of(costs: Costs, hunk: str) -> str:
    """`+87%`: the time without a hunk against all accepted; `=` where it is no difference, empty
    where it is not known; `wrong` where the result without it is."""
    if costs.wrong(hunk):
        return "wrong"
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
        f"{card} {ratio(now, expert)} expert's ",
    )


def told(costs: Costs, target: str) -> list[str]:
    """What is predicted, for what and how, as lines to read."""
    where = costs.where
    if where is None:
        return []
    lines = [
        f"predicted, not measured: {where.card}, {where.shape}, {_pairs(where)}",
        "    by the cost model (docs/cost.md), TFLOP/s = 2 (D + Dv) x kept pairs / time; "
        f"{HALF}: what differs by less is no difference (≈)",
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


def costed(rows: Sequence[Row], lines: Mapping[str, Sequence[str]]) -> tuple[Row, ...]:
    """The rows with what is known now of each hunk; `lines` by `proposal/hunk`."""
    by_label = {(hunk, _label(line)): line for hunk, mine in lines.items() for line in mine}
    return tuple(
        replace(row, text=by_label.get((row.hunk, _label(row.text)), row.text))
        if row.kind is RowKind.NOTE
        else row
        for row in rows
    )


def _label(text: str) -> str:
    """How a row begins."""
    return text[: len(COST)]
