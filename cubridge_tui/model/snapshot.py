"""All that the adaptation screen shows of a session at one moment, computed off the UI thread.

A snapshot is a value: the screen never asks the session again while it paints. The builder keeps
what depends on content hashes only, so a decision costs what it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cubridge_tui.model.costs import NONE, Costs, cost_lines, costed
from cubridge_tui.model.explained import missing
from cubridge_tui.model.links import Links, lifted_name
from cubridge_tui.model.meanings import Decided, OpaqueNote
from cubridge_tui.model.rows import Key, PaneText
from engine.cuir.nodes import Module
from engine.service.session.proposal_kinds import edits
from engine.service.views.costing import Question
from engine.service.views.hunk_words import Explained
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import Binding
from engine.types import Decision, Hunk, Proposal, Stage
from sessions.state import SessionState


class View(StrEnum):
    """How target and lowered are shown."""

    OPS = "hunks of ops"
    LINES = "lines"
    TEXT = "side by side"


WHOLE = "target"  # the name that a draft of the whole target has
Panes = Mapping[Stage, PaneText]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session as the screen shows it.

    `executed`: the kernel is executed as PTX, and there is no CuIR of it.
    `diff_blocked` says why nothing may be decided now (the difference cannot be shown as it is);
    `changed` what changed on disk since the session took it in; `drafts` are hunk name -> (text,
    error) of edits that do not parse; `undo_words` and `redo_words` say what would be undone, and
    `undo_hunk` and `redo_hunk` where.
    `hunks` are those of the target, `meanings` those about the opaque ops, `regions` those of the
    lowering that was written for this target.
    """

    session: str
    title: str
    kernel: str
    spec_name: str
    spec_text: str
    state: SessionState
    executed: bool
    panes: Mapping[View, Panes]
    links: Links
    hunks: tuple[tuple[Proposal, Hunk, Decision | None], ...] = ()
    recipe: Recipe | None = None
    binding: Binding | None = None
    target: Module | None = None
    target_text: str = ""
    lifted: Module | None = None
    read_only: str = ""
    pending: int = 0
    notices: tuple[str, ...] = ()
    diff_blocked: str = ""
    changed: str = ""
    drafts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    constants: Mapping[str, Mapping[str, int | float | bool | str]] = field(default_factory=dict)
    target_names: Callable[[tuple[str | int, ...]], Key] = lifted_name
    undo_words: str = ""
    redo_words: str = ""
    undo_hunk: str = ""
    redo_hunk: str = ""
    opaque: tuple[OpaqueNote, ...] = ()
    meanings: tuple[Decided, ...] = ()
    regions: tuple[Decided, ...] = ()
    explained: Mapping[str, Explained] = field(default_factory=dict)
    question: Question | None = None
    costs: Costs = NONE

    @property
    def all_hunks(self) -> tuple[Decided, ...]:
        """Every hunk that can be decided on, in pipeline order."""
        return (*self.meanings, *self.hunks, *self.regions)

    @property
    def waiting_drafts(self) -> tuple[str, ...]:
        """What has a draft that is not applied: hunks, opaque ops, the whole target."""
        ops = {op.id for op in self.opaque}
        return tuple(n for n in self.drafts if n in ops or n == WHOLE or self.hunk(n) is not None)

    def decision(self, name: str) -> Decision | None:
        """The standing decision about `proposal/hunk`."""
        return next((d for p, h, d in self.all_hunks if f"{p.id}/{h.id}" == name), None)

    def hunk(self, name: str) -> tuple[Proposal, Hunk] | None:
        """The hunk that `proposal/hunk` names."""
        return next(((p, h) for p, h, _ in self.all_hunks if f"{p.id}/{h.id}" == name), None)

    def blocked(self, hunk: str) -> str:
        """Why a hunk may not be decided on now: a difference that is not shown as it is."""
        found = self.hunk(hunk)
        return self.diff_blocked if found is None or edits((found[0],)) else ""

    def missing(self, hunk: str) -> tuple[tuple[str, str], ...]:
        """The rejected hunks, and the names of theirs, that a hunk in the target reads."""
        return missing(hunk, self.explained, self.decision)

    def cost(self, hunk: str) -> tuple[str, ...]:
        """The lines that say what leaving a hunk of the latest proposal out does and costs."""
        return cost_lines(self.question, self.costs).get(hunk, ())

    def with_costs(self, costs: Costs) -> Snapshot:
        """The same with what is known of costs now."""
        lines = cost_lines(self.question, costs)
        panes = dict(self.panes)
        for view in (View.OPS, View.LINES):
            target = self.panes[view][Stage.TARGET]
            shown = replace(target, rows=costed(target.rows, lines))
            panes[view] = {**self.panes[view], Stage.TARGET: shown}
        return replace(self, panes=panes, costs=costs)

    def opaque_at(self, key: Key | None) -> OpaqueNote | None:
        """The opaque op that a row with this key shows, or stands in."""
        return next((op for op in self.opaque if op.holds(key)), None)
