"""Rules for the host and the grid: arguments, preparing kernels, order of work."""
