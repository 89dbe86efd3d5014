"""What a failed gate says, for a person: the op, the counterexample, the clause."""

from __future__ import annotations

from typing import Any

from cubridge_tui.model.links import lifted_name, path_of
from cubridge_tui.model.rows import Key, RowKind
from cubridge_tui.model.snapshot import Snapshot, View
from engine.types import DecisionKind, Gate, Stage, Verdict


def suspects(snap: Snapshot, verdict: Verdict) -> tuple[tuple[Key | None, str] | None, str]:
    """The op (and hunk) to look at for a failed verdict, and how it was found, in words.

    The gate names the op where it can. A wrong number names none: then it is the first hunk that
    the person rejected, edited or left out; those are what the target differs by from a proposal.
    """
    op = verdict.details.get("op")
    if isinstance(op, str) and op:
        path = path_of(op)
        key = lifted_name(path) if verdict.gate is Gate.G1 else snap.target_names(path)
        return (key, ""), f"the gate names the op {op}"
    line = verdict.details.get("line")
    if isinstance(line, int):
        stage = Stage.SOURCE if verdict.gate is Gate.G1 else Stage.LOWERED
        found = snap.links.key(stage, line)
        if found is not None:
            return (found, ""), f"the gate names line {line}"
    for name, title, words in left_out(snap):
        how = f"the gate names no op; the first suspect is {name} ({title}), {words}"
        return (_key_of_hunk(snap, name), name), how
    return None, "the gate names no op, and every hunk was accepted as proposed"


def left_out(snap: Snapshot) -> list[tuple[str, str, str]]:
    """Hunks that are not in the target as proposed: name, title, why."""
    words = {
        DecisionKind.REJECTED: "which was rejected",
        DecisionKind.EDITED: "which was edited",
        None: "which is undecided",
    }
    found = [
        (f"{p.id}/{h.id}", h.title, words[kind])
        for p, h, d in snap.hunks
        if (kind := d.kind if d else None) in words
    ]
    return sorted(found, key=lambda f: list(words.values()).index(f[2]))


def _key_of_hunk(snap: Snapshot, name: str) -> Key | None:
    """An op of a hunk that is in the target, if there is one."""
    for row in snap.panes[View.OPS][Stage.TARGET].rows:
        if row.hunk == name and row.number is not None and row.key is not None:
            return row.key
    return None


def clause_of(snap: Snapshot, verdict: Verdict) -> str:
    """The recipe clause that the suspect serves, in its words: a hunk left out before the op's."""
    found, _ = suspects(snap, verdict)
    if snap.recipe is None:
        return ""
    out = left_out(snap)
    key = found[0] if found is not None else None
    rows = snap.panes[View.OPS][Stage.TARGET].rows
    of_op = (r.hunk for r in rows if r.key == key and r.hunk and r.kind is not RowKind.HEAD)
    name = out[0][0] if out else next(of_op, "") if key is not None else ""
    hunk = snap.hunk(name)
    if hunk is None:
        return ""
    kind = hunk[1].clause
    words = [c.words for c in snap.recipe.clauses if c.kind == kind]
    return f"{kind}: {words[0]}" if words else kind


def verdict_lines(snap: Snapshot, verdict: Verdict, how: str) -> list[str]:
    """A verdict as lines to read."""
    lines = [f"{verdict.gate} {verdict.kind}  ({verdict.seconds:.1f} s)", "", verdict.reason, ""]
    lines.append(f"where      {how}")
    for name, title, words in left_out(snap):
        lines.append(f"left out   {name} ({title}), {words}")
    clause = clause_of(snap, verdict)
    if clause:
        lines.append(f"clause     {clause}")
    example = verdict.details.get("counterexample")
    if isinstance(example, dict):
        lines += ["", "counterexample"]
        lines += [f"  {name:<12} {_number(value)}" for name, value in example.items()]
    runs = verdict.details.get("runs")
    if isinstance(runs, list) and runs:
        lines += ["", f"runs until then ({len(runs)})"]
        for run in runs:
            if isinstance(run, dict):
                rest = ", ".join(
                    f"{k} {_number(v)}" for k, v in run.items() if k not in ("case", "mode")
                )
                lines.append(f"  {run.get('mode', '')!s:<9} {run.get('case', '')}  {rest}")
    for problem in verdict.details.get("problems", []) or []:
        lines.append(f"  {problem}")
    difference = verdict.details.get("difference")
    if difference:
        lines += ["", "first difference", f"  {difference}"]
    return lines


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
