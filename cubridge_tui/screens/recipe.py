"""The recipe: what the spec asks for, in words, beside the lines that say so."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Grid
from textual.screen import Screen

from cubridge_tui.model.rows import PaneText, Row, plain_rows
from cubridge_tui.model.snapshot import Snapshot
from cubridge_tui.text.cells import split_lines
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Line
from engine.cuir.printer import print_expr


class RecipeScreen(Screen[None], inherit_bindings=False):
    """Spec on one side, clauses on the other; the cursor's line marks what belongs to it."""

    DEFAULT_CSS = """
    RecipeScreen Grid { grid-size: 2 1; height: 1fr; grid-gutter: 0 1; }
    RecipeScreen.narrow Grid { grid-size: 1 2; }
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
        with Grid():
            yield CodePane(id="spec")
            yield CodePane(id="words")
        yield Line(id="keys")

    def on_mount(self) -> None:
        snap = self._snap
        self.query_one("#stages", Line).put([(f" recipe of {snap.spec_name}", "title")])
        self.query_one("#keys", Line).put(
            [(" tab", "key"), (" other pane ", "dim"), ("esc", "key"), (" back ", "dim"),
             ("  a line of one side marks the lines of the other that belong to it", "dim")]
        )  # fmt: skip
        spec = PaneText(
            plain_rows(split_lines(snap.spec_text)), "python", f"spec  {snap.spec_name}"
        )
        self.query_one("#spec", CodePane).show(spec)
        self._clauses = self._rows()
        note = "" if snap.recipe else "the spec was not read yet: s reads it"
        words = PaneText([r for r, _ in self._clauses], "", "recipe in words", note)
        self.query_one("#words", CodePane).show(words)
        self.query_one("#words", CodePane).focus()

    def _rows(self) -> list[tuple[Row, tuple[int, ...]]]:
        recipe = self._snap.recipe
        if recipe is None:
            return []
        out: list[tuple[Row, tuple[int, ...]]] = []
        for clause in recipe.clauses:
            at = f"  (line {', '.join(map(str, clause.lines))})" if clause.lines else ""
            out.append((Row(f"{clause.kind:<11} {clause.words}{at}"), clause.lines))
        out.append((Row(""), ()))
        for name, expr in (
            ("score", recipe.score), ("keep", recipe.keep), ("weight", recipe.weight),
            ("kv_head", recipe.kv_head), ("factor", recipe.output_factor),
        ):  # fmt: skip
            if expr is not None:
                out.append((Row(f"{name:<11} {print_expr(expr)}"), ()))
        return out

    def on_resize(self) -> None:
        self.set_class(self.size.width < 120, "narrow")

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
