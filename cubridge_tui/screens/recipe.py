"""The recipe: what the spec asks for, in words, beside the lines that say so."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container

from cubridge_tui.model.rows import PaneText, Row, plain_rows, wrapped
from cubridge_tui.model.snapshot import Snapshot
from cubridge_tui.screens.closing import ClosingScreen
from cubridge_tui.text.cells import split_lines
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Line
from engine.cuir.printer import print_expr
from engine.spec.recipes.recipe import at_lines

LEAST_WORDS = 48  # columns in which a clause can be read


class RecipeScreen(ClosingScreen[None], inherit_bindings=False):
    """Spec on one side, clauses on the other; the cursor's line marks what belongs to it."""

    DEFAULT_CSS = """
    RecipeScreen Container { layout: horizontal; height: 1fr; }
    RecipeScreen #spec { margin-right: 1; }
    RecipeScreen #words { width: 1fr; height: 1fr; }
    RecipeScreen.stacked Container { layout: vertical; }
    RecipeScreen.stacked #spec { width: 1fr; margin-right: 0; }
    """
    BINDINGS = [
        Binding("escape,q,r", "dismiss(None)", "back", show=False),
        Binding("tab,shift+tab", "other", "other pane", show=False),
    ]

    def __init__(self, snap: Snapshot) -> None:
        super().__init__()
        self._snap = snap
        self._clauses: list[tuple[Row, tuple[int, ...]]] = []

    def compose(self) -> ComposeResult:
        yield Line(id="stages")
        with Container():
            yield CodePane(id="spec")
            yield CodePane(id="words")
        yield Line(id="keys")

    def on_mount(self) -> None:
        snap = self._snap
        self.query_one("#stages", Line).put([(f" recipe of {snap.spec_name}", "title")])
        self.query_one("#keys", Line).put(
            [(" tab", "key"), (" other pane ", "dim"), ("esc", "key"), (" back ", "dim"),
             ("  a line marks what belongs to it on the other side", "dim")]
        )  # fmt: skip
        spec = PaneText(
            plain_rows(split_lines(snap.spec_text)), "python", f"spec  {snap.spec_name}"
        )
        self.query_one("#spec", CodePane).show(spec)
        self.query_one("#words", CodePane).focus()

    def _rows(self) -> list[tuple[Row, tuple[int, ...]]]:
        recipe = self._snap.recipe
        if recipe is None:
            return []
        out: list[tuple[Row, tuple[int, ...]]] = []
        for clause in recipe.clauses:
            at = f"  ({at_lines(clause.lines)})" if clause.lines else ""
            kind = clause.kind.replace("_", " ")
            out.append((Row(f"{kind:<11} {clause.words}{at}"), clause.lines))
        out.append((Row(""), ()))
        for name, expr in (
            ("q", recipe.q), ("k", recipe.k),
            ("score", recipe.score), ("keep", recipe.keep), ("weight", recipe.weight),
            ("sink", recipe.sink),
            ("kv_head", recipe.kv_head),
            ("output", recipe.output if recipe.changes_output else None),
        ):  # fmt: skip
            if expr is not None:
                out.append((Row(f"{name:<11} {print_expr(expr)}"), ()))
        return out

    def on_resize(self) -> None:
        """Side by side where both can be read whole: the spec's lines uncut, the words wrapped."""
        spec, words = self.query_one("#spec", CodePane), self.query_one("#words", CodePane)
        wide, high = self.size.width, self.size.height - 2
        columns = min(spec.virtual_size.width + 1, wide)
        stacked = wide - columns - 1 < LEAST_WORDS
        self.set_class(stacked, "stacked")
        room = (wide if stacked else wide - columns - 1) - 2
        self._clauses = [
            (piece, lines) for row, lines in self._rows() for piece in wrapped(row, room)
        ]
        note = "" if self._snap.recipe else "the spec was not read yet: s reads it"
        words.show(PaneText([row for row, _ in self._clauses], "", "recipe in words", note))
        if stacked:
            # All of the spec where the words leave room for it, else half of the screen.
            spare = high - len(self._clauses) - 1
            spec.styles.height = max(min(len(spec.content.rows) + 1, spare), high // 2)
        else:
            spec.styles.width, spec.styles.height = columns, "1fr"

    def action_other(self) -> None:
        spec = self.query_one("#spec", CodePane)
        (self.query_one("#words", CodePane) if spec.has_focus else spec).focus()

    def on_code_pane_cursor_moved(self, event: CodePane.CursorMoved) -> None:
        if not event.pane.has_focus:
            return
        spec, words = self.query_one("#spec", CodePane), self.query_one("#words", CodePane)
        if event.pane is words and words.cursor < len(self._clauses):
            lines = [n - 1 for n in self._clauses[words.cursor][1]]
            spec.mark(lines, (), ())
            words.mark((), (), ())
            if lines:
                spec.centre(min(lines))
        elif event.pane is spec:
            line = spec.cursor + 1
            words.mark([i for i, (_, at) in enumerate(self._clauses) if line in at], (), ())
            spec.mark((), (), ())
