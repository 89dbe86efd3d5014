"""View models: what the screens show, computed without Textual."""
