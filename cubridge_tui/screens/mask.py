"""The mask over i and j: what the spec keeps, what the target keeps, and where they differ."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from textual.app import ComposeResult
from textual.timer import Timer

from cubridge_tui import actions
from cubridge_tui.model import mask, mask_values, mask_words
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.mask import MaskGrid
from cubridge_tui.model.mask_sizes import (
    GLANCE,
    MOST_CELLS,
    choices,
    failing_case,
    legal_sizes,
    tiles,
)
from cubridge_tui.screens.base import ActionScreen, bindings
from cubridge_tui.screens.dialogs import Prompt
from cubridge_tui.screens.picker import Picker
from cubridge_tui.widgets.line import KeyBar, Line, Part
from cubridge_tui.widgets.mask_pane import MaskPane
from engine.cuir.nodes import Module, Num
from engine.cuir.printer import print_expr
from engine.errors import CuBridgeError
from engine.service.views.keep_map import KeepMap
from engine.spec.recipes.kept_pairs import mask_inputs
from engine.spec.recipes.recipe import Input, Recipe
from engine.transfer.binding import Binding
from engine.types import Verdict, VerdictKind

KEPT_SIZES = ""  # the name among a session's values: no input has it
SLICE = 0.010  # seconds of computing between two looks at the keyboard
PAUSE = 0.004


@dataclass(frozen=True, slots=True)
class MaskSubject:
    """What is drawn. `verdict` is G2's, with the counterexample of a failure; `values` are the
    session's own for what the mask reads, which the screen changes; `undecided` hunks are not in
    the target."""

    title: str
    recipe: Recipe
    target: Module | None = None
    binding: Binding | None = None
    lifted: Module | None = None
    verdict: Verdict | None = None
    values: dict[str, str] = field(default_factory=dict)
    undecided: int = 0


class MaskScreen(ActionScreen):
    """One batch and head at one choice of sizes; failing rows are found while it is looked at."""

    NAME = actions.MASK
    BINDINGS = bindings(actions.MASK)
    DEFAULT_CSS = "MaskScreen MaskPane { height: 1fr; }"

    def __init__(self, subject: MaskSubject) -> None:
        super().__init__()
        self.subject = subject
        self.details: Mapping[str, object] = {}
        verdict = subject.verdict
        failed = verdict is not None and verdict.kind in (VerdictKind.FAIL, VerdictKind.OVERRIDDEN)
        if verdict is not None and failed:
            self.details = verdict.details
        spec = dict(subject.target.spec) if subject.target is not None else {}
        found = spec.get("D")
        self._head_dim = found.value if isinstance(found, Num) else 64
        self._tiles = tiles(subject.target or subject.lifted)
        self._choices = choices(
            subject.recipe, int(self._head_dim), failing_case(self.details), self._tiles
        )
        self._choice = 0
        self._open_at(subject, not self.details)
        self.b = self.h = 0
        self.problem = ""
        self._examples = ""  # what the tables that the mask reads are drawn as
        self._chosen_view: bool | None = None
        self._timer: Timer | None = None

    def _open_at(self, subject: MaskSubject, passes: bool) -> None:
        """The sizes chosen last in this session, else a glance at all of it; what fails first."""
        kept = subject.values.get(KEPT_SIZES, "").split()
        asked = dict(GLANCE)
        if len(kept) == 2 and all(k.isdecimal() for k in kept):
            asked |= {"Nq": int(kept[0]), "Nk": int(kept[1])}
        sizes = legal_sizes(subject.recipe, asked)
        if sizes is None or max(sizes["Nq"], sizes["Nk"]) > mask_words.LARGEST:
            return
        width = int(self._head_dim)
        whole = sizes | {"D": width, "Dv": width}
        same = [c for c in self._choices if (c["Nq"], c["Nk"]) == (whole["Nq"], whole["Nk"])]
        if same:
            whole = same[0]
            self._choices.remove(whole)
        self._choices.insert(0 if passes else len(self._choices), whole)

    def compose(self) -> ComposeResult:
        yield Line(id="stages")
        yield Line(id="decision")
        yield MaskPane(id="mask")
        yield Line(id="here")
        yield Line(id="proven")
        yield Line(id="legend")
        yield Line(id="status")
        yield KeyBar(id="keys")

    @property
    def pane(self) -> MaskPane:
        return self.query_one(MaskPane)

    def on_mount(self) -> None:
        example = self.details.get("counterexample")
        place = example if isinstance(example, Mapping) else {}
        self.b, self.h = (_int(place.get(n)) for n in ("b", "h"))
        self.draw()
        if "i" in place:
            self.pane.go_to(_int(place.get("i")), _int(place.get("j")))
            reason = self.subject.verdict.reason if self.subject.verdict is not None else ""
            self.say(f"G2: {reason}", "fail")
        self.pane.focus()

    def facts(self) -> Facts:
        return Facts(job=self.cubridge.jobs.running)

    # --- the picture -----------------------------------------------------------------------------

    @property
    def sizes(self) -> dict[str, int]:
        return self._choices[self._choice]

    def draw(self) -> None:
        """Make the picture of the chosen sizes, batch and head."""
        subject, sizes = self.subject, self.sizes
        self.b, self.h = self.b % sizes["B"], self.h % sizes["Hq"]
        self.problem = ""
        table = mask_values.table(subject.values)
        try:
            picture = KeepMap(
                subject.recipe, subject.target, subject.binding, sizes, self.b, self.h,
                table=table, base=subject.lifted, tile=(self._tiles.rows, self._tiles.keys),
            )  # fmt: skip
            MaskGrid(picture).compute(0)
        except CuBridgeError as error:
            self.problem = f"the target's own mask cannot be drawn: {error.message}"
            picture = KeepMap(
                subject.recipe, None, None, sizes, self.b, self.h, table=table,
                tile=(self._tiles.rows, self._tiles.keys),
            )  # fmt: skip
        self._examples = mask_words.values(subject.recipe, subject.values, picture)
        self.pane.show(MaskGrid(picture), self._by_tiles())
        self._go_on()
        self.refresh_keys()

    def _by_tiles(self) -> bool:
        """Whether tiles are drawn: as the person chose, else where pairs fill many screens."""
        if self._chosen_view is not None:
            return self._chosen_view
        return max(self.sizes["Nq"], self.sizes["Nk"]) > MOST_CELLS and not self.details

    def _go_on(self) -> None:
        """Compute for a moment, rows in sight first; come back until all is known."""
        grid = self.pane.grid
        if grid is None:
            return
        until = time.monotonic() + SLICE
        seen = self.pane.visible_rows
        wanted = [] if self.pane.by_tiles else [i for i in seen if grid.pair(i, 0) is None]
        try:
            while time.monotonic() < until and not grid.done:
                if not wanted and (part := grid.next_part) is not None:
                    grid.compute_tiles(part)
                else:
                    grid.compute(wanted.pop(0) if wanted else None)
        except CuBridgeError as error:
            self.problem = error.message
        self.pane.refresh()
        self._tell()
        if self._timer is not None:
            self._timer.stop()
        self._timer = None
        if not grid.done and not self.problem:
            self._timer = self.set_timer(PAUSE, self._go_on)

    def _tell(self) -> None:
        grid, sizes = self.pane.grid, self.sizes
        assert grid is not None
        title = mask_words.heading(self.subject.title, grid, sizes, self.b, self.h)
        self.query_one("#stages", Line).put(title)
        parts: list[Part] = mask_words.finding(grid, self.problem, self.subject.undecided)
        if self._examples:
            parts.append((f"  {self._examples}", "stale"))
        self.query_one("#decision", Line).put(parts)
        width = self.size.width
        kept = mask_words.kept(grid)
        shown = mask.legend(bool(grid.wrong), width - len(kept) - 2, mask_words.shares(grid))
        legend = [part for g, s, w in shown for part in ((f" {g}", s), (f" {w} ", "dim"))]
        self.query_one("#legend", Line).put(legend, [(f"{kept} ", "dim")])
        verdict = self.subject.verdict
        details = verdict.details if verdict is not None else {}
        executed = mask_words.executed(details)
        proven = executed or mask_words.proven(details)
        line = self.query_one("#proven", Line)
        if line.display != bool(proven):
            line.display = bool(proven)
        line.put([(proven, "dim" if executed else "pass")])
        here = [(" " + grid.describe(self.pane.i, self.pane.j), "")]
        self.query_one("#here", Line).put(here)

    def on_mask_pane_moved(self) -> None:
        if self._timer is None:
            self._go_on()
        else:
            self._tell()

    # --- actions ---------------------------------------------------------------------------------

    def do_mask_next_wrong(self) -> None:
        self._wrong(1)

    def do_mask_previous_wrong(self) -> None:
        self._wrong(-1)

    def _wrong(self, step: int) -> None:
        grid = self.pane.grid
        row = grid.next_wrong(self.pane.i, step) if grid is not None else None
        if grid is None or row is None:
            self.say("no row fails" + ("" if grid is None or grid.done else " so far"))
        else:
            self.pane.go_to(row, grid.wrong[row])

    def do_mask_view(self) -> None:
        if self.pane.grid is not None:
            self._chosen_view = not self.pane.by_tiles
            self.pane.show(self.pane.grid, self._chosen_view)

    def do_mask_sizes(self) -> None:
        self._choice = (self._choice + 1) % len(self._choices)
        self._keep_sizes()
        self.draw()

    def _keep_sizes(self) -> None:
        """The next time this session's mask opens at them."""
        self.subject.values[KEPT_SIZES] = f"{self.sizes['Nq']} {self.sizes['Nk']}"

    def do_mask_type_sizes(self) -> None:
        now = f"{self.sizes['Nq']} {self.sizes['Nk']}"
        asked = Prompt("Nq and Nk, with a blank between", now, mask_words.size_problem)
        self.app.push_screen(asked, self._typed)

    def _typed(self, text: str | None) -> None:
        if text is None:
            return
        nq, nk = mask_words.numbers(text)
        asked = {**self.sizes, "Nq": nq, "Nk": nk}
        wanted = legal_sizes(self.subject.recipe, asked)
        if wanted is None or max(wanted["Nq"], wanted["Nk"]) > mask_words.LARGEST:
            limits = ", ".join(map(print_expr, self.subject.recipe.constraints))
            self.say(f"the spec does not allow Nq {nq}, Nk {nk}: it wants {limits}", "stale")
            return
        if wanted not in self._choices:
            self._choices.append(wanted)
        self._choice = self._choices.index(wanted)
        self._keep_sizes()
        self.draw()
        if wanted != asked:
            self.say(f"the nearest that the spec allows: Nq {wanted['Nq']}, Nk {wanted['Nk']}")

    def do_mask_values(self) -> None:
        items = {i.name: i for i in mask_inputs(self.subject.recipe)}
        if not items:
            self.say("the mask reads no table and no number: there is no value to type", "stale")
        elif len(items) == 1:
            self._ask_values(*items.values())
        else:
            rows = [(name, self.subject.values.get(name) or "the example") for name in items]
            self.app.push_screen(
                Picker("whose values", rows),
                lambda name: self._ask_values(items[name]) if name is not None else None,
            )

    def _ask_values(self, item: Input) -> None:
        def given(text: str | None) -> None:
            if text is None:
                return
            self.subject.values.pop(item.name, None)
            if text.strip():
                self.subject.values[item.name] = text.strip()
            self.draw()
            past = mask_values.unreached(item, text, self.sizes)
            if past:
                self.say(f"{past} values lie past the end at these sizes: S types others", "stale")

        now = self.subject.values.get(item.name, "")
        self.app.push_screen(
            Prompt(mask_values.asks(item), now, lambda t: mask_values.problem(item, t)), given
        )

    def do_mask_head(self) -> None:
        self.h += 1
        self.draw()
        if self.sizes["Hq"] == 1:
            self.say("there is one head at these sizes: s or S takes others")

    def do_mask_batch(self) -> None:
        self.b += 1
        self.draw()
        if self.sizes["B"] == 1:
            self.say("there is one batch at these sizes: s or S takes others")

    def do_mask_go_to(self) -> None:
        here = f"{self.pane.i} {self.pane.j}"
        asked = Prompt("i and j, with a blank between", here, mask_words.place_problem)
        self.app.push_screen(asked, self._go)

    def _go(self, text: str | None) -> None:
        if text is not None:
            i, j = mask_words.numbers(text)
            self.pane.go_to(i, j)

    def do_mask_close(self) -> None:
        self.dismiss(None)


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
