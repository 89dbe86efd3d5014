"""What containers paint, nothing but their colour; and what a repaint sends to the terminal."""

from __future__ import annotations

from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


def backdrop(widget: Widget, crop: Region) -> list[Strip]:
    """The lines of a container that stands behind its children: one and the same strip.

    Textual renders, styles and divides each line of every container behind a pane whenever the
    pane is painted, though nobody sees them.
    """
    strip = Strip.blank(crop.width, widget.visual_style.rich_style)
    background = widget.background_colors[1]
    for each in widget.get_line_filters():
        strip = strip.apply_filter(each, background)
    return [strip] * crop.height


class LeanUpdate(ChopsUpdate):
    """Textual's update, which moves the terminal's cursor to each piece of a line (3 us each, and
    some ten bytes): here only where a piece does not begin where the last one ended, as far as that
    is sure. How wide a character is that is not ASCII, terminals do not agree upon."""

    def render_segments(self, console: Console) -> str:
        out: list[str] = []
        for y, first, last in self.spans:
            at = -1  # the column that the terminal's cursor is in
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x > last or end <= first:
                    continue
                if x != at:
                    out.append(f"\x1b[{y + 1};{x + 1}H")
                if end > last:
                    strip = strip.crop(0, last - x)
                text = strip.render(console)
                out.append(text)
                at = x + strip.cell_length if text.isascii() else -1
        return "".join(out)


class LeanCompositor(Compositor):
    """A screen's compositor, whose updates are lean."""

    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        if update is None:
            return None
        return LeanUpdate(update.chops, update.spans, update.chop_ends)
