"""G3: the lowered source is the target again, and its primitives are proven on a GPU."""
