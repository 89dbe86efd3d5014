"""A recipe held against the spec's own function, at other sizes, types and calls."""
