"""A pane whose rows bring their own styles."""

from __future__ import annotations

from cubridge_tui.model.gpu_results import Chart
from cubridge_tui.model.rows import PaneText
from cubridge_tui.widgets.code_pane import CodePane


class ChartPane(CodePane):
    """Tables and bars."""

    def chart(self, title: str, chart: Chart, note: str = "") -> None:
        """Show a chart."""
        self.show(PaneText(chart.rows, "", title, note), spans=chart.spans)
