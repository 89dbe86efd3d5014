"""CuBridge TUI: the terminal app and the command line over the engine."""

__version__ = "0.1.0"
