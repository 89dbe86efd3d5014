"""What containers paint: nothing but their colour."""

from __future__ import annotations

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
