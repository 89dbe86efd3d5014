"""What a failed gate says, for a person: the op, the counterexample, the clause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubridge_tui.model.built import conformance_lines, resource_lines
from cubridge_tui.model.links import lifted_name, path_of
from cubridge_tui.model.rows import Key, RowKind
from cubridge_tui.model.snapshot import Snapshot, View
from cubridge_tui.text.error_pictures import picture_lines
from engine.service.views.hunk_words import clause_words
from engine.types import DecisionKind, Gate, Stage, Verdict

# Of a counterexample: its own lines, what the reason says, and the weights below the picture.
_TOLD_APART = ("case", "diagnosis", "wrong_rows", "rows", "keys", "wrong_keys")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A place to look at for a failed verdict: an op, a hunk, or both; and how it was found."""

    key: Key | None
    hunk: str
    words: str


def suspects(snap: Snapshot, verdict: Verdict) -> tuple[Suspect, ...]:
    """Where to look for a failed verdict, the likeliest place first.

    A wrong result shows at the op that the gate names, but a person caused it by what was decided:
    for G2 the hunks that are not in the target as proposed come first, those at the op before the
    others. For the other gates the op comes first.
    """
    named = _named(snap, verdict)
    out = [
        Suspect(_key_of_hunk(snap, name), name, f"{name} ({title}), {words}")
        for name, title, words in left_out(snap)
    ]
    if named is not None:
        out.sort(key=lambda s: not _touches(snap, s.hunk, named.key))
    if verdict.gate is not Gate.G2:
        return tuple([named] if named is not None else out)
    return (*out, *([named] if named is not None else []))


def _named(snap: Snapshot, verdict: Verdict) -> Suspect | None:
    """The op or the line that the gate itself names."""
    op = verdict.details.get("op")
    if isinstance(op, str) and op:
        path = path_of(op)
        key = lifted_name(path) if verdict.gate is Gate.G1 else snap.target_names(path)
        return Suspect(key, "", f"the gate names the op {op}")
    line = verdict.details.get("line")
    if isinstance(line, int):
        stage = Stage.SOURCE if verdict.gate is Gate.G1 else Stage.LOWERED
        found = snap.links.key(stage, line)
        if found is not None:
            return Suspect(found, "", f"the gate names line {line}")
    return None


def _touches(snap: Snapshot, hunk: str, key: Key | None) -> bool:
    rows = snap.panes[View.OPS][Stage.TARGET].rows
    return key is not None and any(r.hunk == hunk and r.key == key for r in rows)


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
    """An op of a hunk that other panes show too; else the op before the hunk's place."""
    before: Key | None = None
    known = set(snap.links.lines.get(Stage.LIFTED, {}).values())
    rows = snap.panes[View.OPS][Stage.TARGET].rows
    inside = [r.key for r in rows if r.hunk == name and r.key in known]
    if inside:
        return inside[0]
    for row in rows:
        if row.hunk == name:
            break
        before = row.key if row.key in known else before
    return before


def _lines_of(snap: Snapshot, suspect: Suspect, gate: Gate) -> list[str]:
    """The suspect's first line: the pane's name, the number, the text; of a hunk that adds lines
    and was left out, the first that the target lacks."""
    first = {Gate.G1: Stage.LIFTED, Gate.G3: Stage.LOWERED}.get(gate, Stage.TARGET)
    for stage in dict.fromkeys((first, Stage.TARGET, Stage.LIFTED, Stage.SOURCE)):
        rows = [
            row for row in snap.panes[View.OPS][stage].rows
            if row.kind not in (RowKind.HEAD, RowKind.NOTE)
            and (row.hunk == suspect.hunk if suspect.hunk else row.key == suspect.key)
        ]  # fmt: skip
        for row in rows:
            if row.number is not None:
                return [f"{stage.value} line {row.number}: {row.text.strip()}"]
        if rows:
            return [f"not in the {stage.value}: {rows[0].text.strip()}"]
    return []


def clause_of(snap: Snapshot, suspect: Suspect | None) -> str:
    """The recipe clause that the suspect serves, in its words."""
    if suspect is None or snap.recipe is None:
        return ""
    rows = snap.panes[View.OPS][Stage.TARGET].rows
    of_op = (r.hunk for r in rows if r.key == suspect.key and r.hunk and r.kind is not RowKind.HEAD)
    name = suspect.hunk or (next(of_op, "") if suspect.key is not None else "")
    hunk = snap.hunk(name)
    if hunk is None:
        return ""
    words = clause_words(snap.recipe, hunk[1].clauses)
    return words[0] if words else hunk[1].clause


def verdict_lines(snap: Snapshot, verdict: Verdict, at: int = 0) -> list[str]:
    """A verdict as lines to read; `at` is the suspect that the panes show."""
    lines = [f"{verdict.gate} {verdict.kind} in {verdict.seconds:.1f} s: {verdict.reason}", ""]
    example = verdict.details.get("counterexample")
    if isinstance(example, dict):
        told = {k: v for k, v in example.items() if k not in _TOLD_APART}
        values = ", ".join(f"{name} {_number(value)}" for name, value in told.items())
        lines.append(f"counterexample  {values}")
        lines += [f"{'':<16}{example[name]}" for name in ("case", "diagnosis") if name in example]
        lines.append("")
    found = suspects(snap, verdict)
    for number, suspect in enumerate(found):
        lines.append(f"{'here ▶' if number == at else 'also':<10} {suspect.words}")
        lines += [f"{'':<10} {text}" for text in _lines_of(snap, suspect, verdict.gate)]
    if not found:
        lines.append("where      the gate names no op, and every hunk was accepted as proposed")
    clause = clause_of(snap, found[at] if found else None)
    if clause:
        lines.append(f"clause     {clause}")
    drawn, details = picture_lines(verdict.details), verdict.details
    lines += ["", *drawn] if drawn else []
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
    for more in (resource_lines(details), conformance_lines(details)):
        lines += ["", *more] if more else []
    return lines


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
