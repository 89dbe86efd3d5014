"""The numbers that a kernel makes on its way, held against the spec's: the first that are not."""
