"""Readings of a spec at several sizes, and the inputs that it makes itself."""
