"""Widgets: every pane of text is one Line API widget; nothing mounts a widget per line."""
