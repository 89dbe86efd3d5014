"""What a model can be asked for in a session, and what its state asks for first."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.types import DecisionKind, Gate, Stage, VerdictKind

if TYPE_CHECKING:
    from cubridge_tui.model.snapshot import Snapshot


class Topic(StrEnum):
    """What is asked for. The first three are the steps of the meanings, by the steps' own names."""

    ANNOTATE = "annotate"
    BIND = "bind"
    TRANSLATE = "translate"
    EDIT = "edit"
    LOWER = "lower"

    @property
    def words(self) -> str:
        """In a few words, with the step's number where there are steps."""
        return {
            Topic.ANNOTATE: "meanings of opaque ops, annotate 1/3: what the ops do",
            Topic.BIND: "meanings of opaque ops, bind 2/3: who executes them",
            Topic.TRANSLATE: "meanings of opaque ops, translate 3/3: what they are in CuIR",
            Topic.EDIT: "the edit of the lifted kernel that the spec needs",
            Topic.LOWER: "the lowering: new text for the regions that the target changes",
        }[self]

    @property
    def short(self) -> str:
        return self.words.split(":")[0].replace("meanings of opaque ops, ", "")


MEANINGS = (Topic.ANNOTATE, Topic.BIND, Topic.TRANSLATE)


def topics(snap: Snapshot) -> tuple[Topic, ...]:
    """What can be asked for now; what the session's state asks for comes first."""
    from cubridge_tui.model.meanings import wanted_step
    from cubridge_tui.model.next_step import unlowered, unmeant
    from engine.service.session.meanings import step_of

    state = snap.state
    out: list[Topic] = []
    if snap.opaque:
        out.append(Topic.ANNOTATE)
        said = {
            step.value
            for p, _, d in snap.meanings
            if d is not None
            and d.kind is not DecisionKind.REJECTED
            and (step := step_of(p)) is not None
        }
        out += [now for before, now in pairwise(MEANINGS) if before in said]
    if state.stage(Stage.LIFTED).artifacts:
        out.append(Topic.EDIT)
    if snap.target is not None and snap.target != snap.lifted:
        out.append(Topic.LOWER)
    lowered = state.verdict(Gate.G3)
    failed = lowered is not None and lowered.kind is VerdictKind.FAIL and not lowered.too_slow
    wanted = wanted_step(state)
    open_step = next((step_of(p) for p, _, d in snap.meanings if d is None), None)
    first = Topic.EDIT
    if open_step is not None:
        first = Topic(open_step.value)
    elif wanted is not None:
        first = Topic(wanted.value)
    elif failed or unlowered(state) is not None or any(d is None for _, _, d in snap.regions):
        first = Topic.LOWER
    elif unmeant(state) and not snap.hunks:
        first = _unsaid(snap, out)
    if first in out:
        out.remove(first)
        out.insert(0, first)
    return tuple(out)


def _unsaid(snap: Snapshot, there: list[Topic]) -> Topic:
    """The step for ops that have no meaning: the first that none of them has got through, else
    the last (where some of what was proposed was refused)."""
    from engine.service.session.meanings import step_of

    left = {op.id for op in snap.opaque if not op.meant}
    taken = {
        step.value
        for p, h, d in snap.meanings
        if h.id in left
        and d is not None
        and d.kind is not DecisionKind.REJECTED
        and (step := step_of(p)) is not None
    }
    return next((t for t in MEANINGS if t in there and t.value not in taken), Topic.ANNOTATE)
