"""The adaptation screen: stages, linked panes, review."""

from cubridge_tui.screens.adaptation.screen import AdaptationScreen

__all__ = ["AdaptationScreen"]
