"""Inputs for verification: the spec's own tensors, drawn to show what is wrong."""
