"""Times of the kernel beside what else computes the same function."""
