"""A recipe carried into the source of a kernel that others wrote: patched, executed, judged."""
