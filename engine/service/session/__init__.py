"""One adaptation: what a session's content means, its steps and its decisions."""
