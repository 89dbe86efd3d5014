"""Edits of the source: blocks, functions, the argument struct, expressions."""
