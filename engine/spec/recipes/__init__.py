"""The recipe: what a spec asks of a kernel; as JSON and in words. Needs no torch."""
