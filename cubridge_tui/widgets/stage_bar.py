"""The stages in a row with their gates' verdicts, and the level of it all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.cells import cell_len

from cubridge_tui.text.sanitise import one_line
from cubridge_tui.widgets.line import Line, Part
from engine.types import Gate, Level, Stage, Verdict, VerdictKind, open_assumptions
from sessions.state import SessionState

MARKS = {
    VerdictKind.PASS: "✓",
    VerdictKind.FAIL: "✗",
    VerdictKind.STALE: "~",
    VerdictKind.NOT_RUN: "–",
    VerdictKind.OVERRIDDEN: "!",
}
AMBER = "°"  # beside a pass that visits tiles for nothing
LEAST_TITLE = 24  # columns of a title that tell sessions apart
LEAST_SPEC = 6  # of which these belong to the spec at least
ON, FAMILY = " on ", "flash_fwd_"  # `SPEC on KERNEL`; what the shipped kernels' names begin with
NAMES = {Gate.G1: "lifted", Gate.G2: "target", Gate.G3: "lowered", Gate.G4: "verified"}


class StageBar(Line):
    """`source ▸ lifted G1 ✓ pass ▸ target G2 ✗ fail ▸ lowered G3 · …   level none`.

    Every mark and the level are there at any width; words go first, then the stages' names, then
    what is predicted, and the session's title is cut but stays wherever there is room for a
    beginning of it.
    """

    def show(self, state: SessionState, title: str, width: int, cost: tuple[str, ...] = ()) -> None:
        """Show a state; `cost` says what is predicted, from long to short."""
        for left, right in _forms(state, cost):
            room = width - sum(cell_len(t) for t, _ in (*left, *right)) - 4
            if room >= min(cell_len(_short(title)), LEAST_TITLE):
                left.insert(0, (f" {title_in(title, room)}  ", "title"))
                break
        self.put(left, right)


def in_vain(verdict: Verdict) -> str:
    """The share of the visited key tiles that hold no kept pair, where G2 passed and found some."""
    tiles = verdict.details.get("tiles") if verdict.passed else None
    if not isinstance(tiles, Mapping) or not tiles.get("in_vain"):
        return ""
    return f"{100 * int(tiles['in_vain']) / max(int(tiles['visited']), 1):.0f}%"


def title_in(title: str, room: int) -> str:
    """A session's title in `room` columns: of `SPEC on KERNEL` the kernel's family goes first, then
    the spec's end, so that what tells kernels apart (the card's architecture) stays."""
    whole = one_line(title)
    if len(whole) <= room:
        return whole
    short = one_line(_short(title))
    spec, on, kernel = short.rpartition(ON)
    left = room - len(on + kernel)
    if len(short) <= room or left < LEAST_SPEC:
        return one_line(short, room)
    return one_line(spec, left) + on + kernel


def _short(title: str) -> str:
    spec, on, kernel = title.rpartition(ON)
    return f"{spec}{on}{kernel.removeprefix(FAMILY)}"


def _forms(state: SessionState, cost: tuple[str, ...]) -> Iterator[tuple[list[Part], list[Part]]]:
    """The bar without its title, in words, then in fewer and fewer of them."""
    for kinds in (True, False):
        for words in cost or ("",):
            yield _gates(state, True, kinds), _level(state, True, words)
    for words in cost[-2:]:
        yield _gates(state, True, False, source=False), _level(state, False, words)
    for words in (*cost, ""):
        yield _gates(state, False, False, tight=True), _level(state, False, words)


def _gates(
    state: SessionState, names: bool, words: bool, tight: bool = False, source: bool = True
) -> list[Part]:
    have = bool(state.stage(Stage.SOURCE).artifacts)
    source = source and not tight
    parts: list[Part] = [(" source ", "title" if have else "dim")] if source else []
    for gate in Gate:
        parts.append((" ", "dim") if tight else ("▸ ", "dim"))
        name = f"{NAMES[gate]} " if names else ""
        verdict = state.verdict(gate)
        if verdict is None:
            parts.append((f"{name}{gate}·" if tight else f"{name}{gate} · ", "dim"))
            continue
        word = verdict.kind.value.replace("_", " ") + " " if words else ""
        mark, style = MARKS[verdict.kind], verdict.kind.value
        vain = in_vain(verdict)
        if vain:  # it computes the spec, and visits tiles for nothing
            mark, style = f"{mark}{AMBER}", "stale"
            word = f"{word}, {vain} of its tiles for nothing ".replace(" ,", ",") if words else ""
        text = f"{gate}{mark}" if tight else f"{name}{gate} {mark} {word}"
        parts.append((text, style))
    return parts


def _level(state: SessionState, words: bool, cost: str) -> list[Part]:
    level = state.level
    assumed = len(open_assumptions(state.verdicts))
    style = {Level.NONE: "dim", Level.OVERRIDDEN: "overridden"}.get(level, "pass")
    parts: list[Part] = [("level ", "dim"), (f"{level} ", style)]
    if assumed:
        word = f"{assumed} meaning{'s' * (assumed != 1)} assumed " if words else f"≈{assumed} "
        parts = [(word, "stale"), *parts]
    if state.acceptance is not None:
        current = state.acceptance_is_current
        if words:
            word = f"accepted {state.accepted_level} " if current else "accepted, changed since "
            parts = [(word, "pass" if current else "stale"), ("│ ", "dim"), *parts]
        else:
            parts = [("★ " if current else "★~ ", "pass" if current else "stale"), *parts]
    if cost:
        parts = [(cost, "title"), ("│ ", "dim"), *parts]
    return parts
