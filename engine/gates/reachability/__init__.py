"""Which sides of its conditions a module can take at a legal size, and which nobody saw."""
