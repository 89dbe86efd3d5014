"""A run of a spec's function on small tensors, read beside each value as expressions."""
