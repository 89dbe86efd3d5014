"""The expressions of a trace: built, factored, and fitted over several sizes."""
