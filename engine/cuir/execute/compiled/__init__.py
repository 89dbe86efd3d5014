"""A program as flat code and closures."""
