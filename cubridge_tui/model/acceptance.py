"""What an acceptance holds: the bytes, the level, what was proven, what was not run."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from cubridge_tui.console import typeable
from cubridge_tui.model.built import conformance_lines, resource_lines
from cubridge_tui.model.rows import Row, RowKind
from cubridge_tui.model.snapshot import Snapshot, View
from cubridge_tui.text.sanitise import visible_lines
from engine.types import Gate, Level, Stage, VerdictKind, open_assumptions
from engine.types.trust import beside, rests_on

MEANS = {
    Level.GPU_VERIFIED: "every gate passed on exactly these bytes, on a GPU too",
    Level.CPU_VERIFIED: "checked on the CPU and compiled; these bytes have not run on a GPU",
    Level.OVERRIDDEN: "a person took the responsibility for at least one gate",
    Level.NONE: "not proven: cannot be accepted",
}


NOT_RUN = {
    Gate.G1: "the source was not lifted and run",
    Gate.G2: "the target was not compared with the spec",
    Gate.G3: "the lowered source was not lifted again or compiled",
    Gate.G4: "these bytes have not run on a GPU; v on the panes runs or packs the job",
}


def acceptance_rows(snap: Snapshot, predicted: Sequence[str] = ()) -> list[Row]:
    """The lines of the accept screen; `predicted` are those of the cost model."""
    state = snap.state
    accepted = state.acceptance is not None and state.acceptance_is_current
    level = state.accepted_level if accepted else state.level
    rows = [
        Row(f"session    {snap.session}"),
        Row(f"kernel     {snap.kernel}, adapted to {snap.spec_name}"),
        Row(f"lowered    {state.hashes.get('lowered', '(none)')}"),
        Row(f"level      {level}: {MEANS[level]}{beside(rests_on(state.verdicts))}"),
        Row(""),
        Row("gates", RowKind.HEAD),
    ]
    for gate in Gate:
        verdict = state.verdict(gate)
        if verdict is None:
            rows.append(Row(f"  {gate}  not run      {NOT_RUN[gate]}"))
        else:
            word = verdict.kind.value.replace("_", " ")
            by = f" by {verdict.by}" if verdict.by else ""
            rows.append(Row(f"  {gate}  {word:<12} {typeable(verdict.reason)}{by}"))
    missing = [g for g in Gate if (v := state.verdict(g)) is None or v.kind is not VerdictKind.PASS]
    if missing:
        rows.append(Row(f"  not passed: {', '.join(missing)}"))
    assumed = open_assumptions(state.verdicts)
    if assumed:
        rows.append(Row(f"  assumed meanings: {', '.join(assumed)}"))
    built = state.verdict(Gate.G3)
    details = built.details if built is not None else {}
    for lines in (resource_lines(details), predicted, conformance_lines(details)):
        if lines:
            # Numbers in columns stay in them; what is longer than a screen is wrapped.
            rows += [Row(""), Row(lines[0], RowKind.HEAD), *map(Row, lines[1:])]
    if snap.recipe is not None:
        rows += [Row(""), Row("what it computes", RowKind.HEAD)]
        rows += [Row(f"  {c.kind.replace('_', ' '):<11} {c.words}") for c in snap.recipe.clauses]
    patch = lowered_patch(snap)
    changed = sum(line[:1] == "+" and line[:3] != "+++" for line in patch)
    rows += [Row(""), Row(f"the patch: {changed} lines added or changed", RowKind.HEAD)]
    kinds = {"+": RowKind.ADD, "-": RowKind.DEL}
    for line in patch[2:]:
        rows.append(Row(line, kinds.get(line[:1], RowKind.SAME), sign=" "))
    return rows


def lowered_patch(snap: Snapshot) -> list[str]:
    """The lowered source as a unified diff."""
    panes = snap.panes[View.TEXT]
    before = [r.text for r in panes[Stage.SOURCE].rows if r.number is not None]
    after = [r.text for r in panes[Stage.LOWERED].rows if r.number is not None]
    if not after:
        return []
    made = difflib.unified_diff(before, after, "a/kernel.cu", "b/kernel.cu", lineterm="")
    return [line for text in made for line in visible_lines(text)]
