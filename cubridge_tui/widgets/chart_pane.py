"""A pane whose rows bring their own styles."""

from __future__ import annotations

from collections.abc import Sequence

from cubridge_tui.model.gpu_results import Chart
from cubridge_tui.model.rows import PaneText
from cubridge_tui.text.highlight import Highlighter, Span
from cubridge_tui.widgets.code_pane import CodePane


class _Given(Highlighter):
    """Spans that were made with the rows."""

    def __init__(self, spans: Sequence[Sequence[Span]]) -> None:
        super().__init__(0, lambda _: "", "")
        self._given = spans

    def spans(self, index: int) -> Sequence[Span]:
        return self._given[index] if index < len(self._given) else ()


class ChartPane(CodePane):
    """Tables and bars."""

    def chart(self, title: str, chart: Chart, note: str = "") -> None:
        """Show a chart."""
        self.show(PaneText(chart.rows, "", title, note))
        self._highlighter = _Given(chart.spans)
        self.refresh()
