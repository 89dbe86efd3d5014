"""Kernels of other people: compiled, launched by their own launcher into a record, and executed."""
