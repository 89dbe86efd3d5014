"""Every gate of a session as lines to read: what it found, or what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cubridge_tui.console import typeable
from cubridge_tui.model.built import conformance_lines, occupancy_lines, resource_lines
from cubridge_tui.model.costs import told
from cubridge_tui.model.inspect import work_lines
from cubridge_tui.model.next_step import owed, unlowered, unmeant
from cubridge_tui.model.proofs import proof_lines
from cubridge_tui.model.rows import Row, RowKind
from cubridge_tui.model.snapshot import Snapshot, View
from engine.types import Gate, Stage, Verdict, VerdictKind

ASKS = {
    Gate.G1: "does the lifted IR run, and compute what the kernel declares?",
    Gate.G2: "does the target compute the spec?",
    Gate.G3: "does the lowered source lift to the target again, and compile without a loss?",
    Gate.G4: "does the kernel compute it on a GPU, and how fast?",
}
_AGAIN = {
    Gate.G1: "D in the lifted pane lifts and runs it again",
    Gate.G2: "D in the target pane proposes again, then s runs it",
    Gate.G3: "D in the lowered pane lowers and runs it again",
}
_ON_A_GPU = "v runs it where a GPU is, or packs the job and imports its result"


def gates_lines(snap: Snapshot, running: str = "") -> list[str]:
    """The four gates in pipeline order; `running` is the job that runs now."""
    lines = [f"{running} is running: it has a verdict when it ends; ctrl+c cancels", ""]
    lines = lines if running else []
    for gate in Gate:
        verdict = snap.state.verdict(gate)
        kind = verdict.kind.value.replace("_", " ") if verdict is not None else "has not run"
        took = f" in {verdict.seconds:.1f} s" if verdict is not None and verdict.seconds else ""
        lines.append(f"{gate}  {kind}{took}: {ASKS[gate]}")
        if verdict is not None and verdict.reason:
            lines += [f"    {text}" for text in typeable(verdict.reason).split("\n")]
        waits = waits_for(snap, gate, verdict)
        lines += [f"    waits for  {waits}"] if waits else []
        lines += [f"    {line}" for line in _found(snap, verdict)]
        lines.append("")
    predicted = told(snap.costs, snap.state.hashes.get("target", ""))
    return [*lines, *predicted] if predicted else lines[:-1]


def waits_for(snap: Snapshot, gate: Gate, verdict: Verdict | None) -> str:
    """What a gate without a verdict waits for, and the key that goes on; empty where it has one."""
    state = snap.state
    if verdict is None or verdict.kind is VerdictKind.STALE:
        before = [g for g in Gate if g.value < gate.value]
        owing = next((g for g in before if _unsettled(state.verdict(g))), None)
        if owing is not None:
            return f"{owing}, which comes first"
        return _ON_A_GPU if gate is Gate.G4 else _typed(snap)
    if verdict.kind is VerdictKind.FAIL:
        fix = verdict.details.get("fix")
        mend = f"{typeable(str(fix))}; O overrides it in your name" if fix else _typed(snap)
        return _ON_A_GPU if gate is Gate.G4 else f"a mend: {mend}"
    if verdict.kind is not VerdictKind.NOT_RUN:
        return ""
    if gate is Gate.G4:
        return _ON_A_GPU
    if verdict.unfinished:
        return "another run: s begins it"
    if gate is Gate.G1 and unmeant(state):
        return "meanings of its opaque ops: M asks a model, e on the op writes one"
    if gate is Gate.G3 and unlowered(state) is not None:
        return "a lowering: M lets a model write it, or u and e change the target"
    fix = verdict.details.get("fix")
    first = f"{typeable(str(fix))}; then " if fix else ""
    return f"{first}{_AGAIN[gate]}; O overrides it in your name"


def _unsettled(verdict: Verdict | None) -> bool:
    settled = (VerdictKind.PASS, VerdictKind.OVERRIDDEN)
    return verdict is None or verdict.kind not in settled


def _typed(snap: Snapshot) -> str:
    """What the session owes, with its key where the words name none."""
    step = owed(snap.state)
    return f"{step.words} (s)" if step.action == "step" else step.words


# --- what a gate found ---------------------------------------------------------------------------


def _found(snap: Snapshot, verdict: Verdict | None) -> list[str]:
    if verdict is None:
        return []
    details = verdict.details
    lines = [*proof_lines(details), *_runs(details)]
    if verdict.gate is Gate.G2 and details.get("cases"):
        lines += work_lines(snap)
    if verdict.gate is Gate.G3 and details.get("build"):
        lines += [_changed(details), _places(snap)]
        lines += [*resource_lines(details), *occupancy_lines(details), *_warnings(details)]
        lines += conformance_lines(details)
    return [line for line in lines if line]


def _runs(details: Mapping[str, Any]) -> list[str]:
    runs = [r for r in details.get("runs") or () if isinstance(r, Mapping)]
    return [f"{r.get('mode', '')!s:<9} {r.get('case', '')}" for r in runs]


def _changed(details: Mapping[str, Any]) -> str:
    changed, total = details.get("changed_lines"), details.get("total_lines")
    if not (isinstance(changed, int) and isinstance(total, int) and total):
        return ""
    return f"changed    {changed} of {total} lines ({100 * changed / total:.0f} %)"


def _places(snap: Snapshot) -> str:
    """The spans of the lowered source that are not the expert's."""
    found = spans(snap.panes[View.OPS][Stage.LOWERED].rows)
    told = ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in found)
    if not told:
        return "spans      every byte is the expert's"
    return f"spans      lines {told} of the lowered source; all other bytes are the expert's"


def spans(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Runs of new lines, by their first and last number; a place where lines only went has the
    number of the line after it."""
    out: list[tuple[int, int]] = []
    gone = False
    for row in rows:
        if row.kind is RowKind.ADD and row.number is not None:
            if out and out[-1][1] == row.number - 1:
                out[-1] = (out[-1][0], row.number)
            else:
                out.append((row.number, row.number))
            gone = False
        elif row.kind is RowKind.DEL:
            gone = True
        elif row.number is not None:
            if gone and not (out and out[-1][1] == row.number - 1):
                out.append((row.number, row.number))
            gone = False
    return out


def _warnings(details: Mapping[str, Any]) -> list[str]:
    """What the compiler warned of; that it warned of nothing is said, too."""
    build = details["build"]
    told = [
        f"{special.get('key')}: {w.get('text')}"
        for special in build.get("specialisations") or ()
        for w in special.get("warnings") or ()
    ]
    told += [
        ": ".join(str(p) for p in (d.get("where"), d.get("message")) if p)
        for d in build.get("diagnostics") or ()
        if d.get("severity") == "warning"
    ]
    return [f"warning    {typeable(line)}" for line in told] or ["warnings   none of nvcc or ptxas"]
