"""Pictures of what was measured: bars and plots, as SVG."""
