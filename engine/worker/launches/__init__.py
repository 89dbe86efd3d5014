"""Launches of the built kernel: its C interface, guarded tensors, graphs."""
