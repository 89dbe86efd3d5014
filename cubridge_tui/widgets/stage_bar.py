"""The stages in a row with their gates' verdicts, and the level of it all."""

from __future__ import annotations

from cubridge_tui.widgets.line import Line, Part
from engine.types import Gate, Level, Stage, VerdictKind
from sessions.state import SessionState

MARKS = {
    VerdictKind.PASS: "✓",
    VerdictKind.FAIL: "✗",
    VerdictKind.STALE: "~",
    VerdictKind.NOT_RUN: "–",
    VerdictKind.OVERRIDDEN: "!",
}
NAMES = {Gate.G1: "lifted", Gate.G2: "target", Gate.G3: "lowered", Gate.G4: "verified"}
_SHORT = 118  # below this many columns the stages' names are left out


class StageBar(Line):
    """`source ▸ lifted G1 ✓ pass ▸ target G2 ✗ fail ▸ lowered G3 ·   level none`."""

    def show(self, state: SessionState, title: str, width: int, replay: bool = False) -> None:
        parts: list[Part] = [(" REPLAY ", "banner")] if replay else []
        short = width < _SHORT
        if not short:
            parts += [(f" {title}  ", "title")]
        have = bool(state.stage(Stage.SOURCE).artifacts)
        parts.append((" source " if not short else " ", "title" if have else "dim"))
        for gate in Gate:
            verdict = state.verdict(gate)
            parts.append(("▸ ", "dim"))
            name = "" if short else f"{NAMES[gate]} "
            if verdict is None:
                parts.append((f"{name}{gate} · ", "dim"))
                continue
            word = verdict.kind.value.replace("_", " ")
            parts.append((f"{name}{gate} {MARKS[verdict.kind]} {word} ", verdict.kind.value))
        level = state.level
        style = {Level.NONE: "dim", Level.OVERRIDDEN: "overridden"}.get(level, "pass")
        right: list[Part] = [("level ", "dim"), (f"{level} ", style)]
        if state.acceptance is not None:
            current = state.acceptance_is_current
            word = f"accepted {state.accepted_level} " if current else "accepted, changed since "
            right = [(word, "pass" if current else "stale"), ("│ ", "dim"), *right]
        self.put(parts, right)
