"""Rules for masks that depend on data: kernels that list tiles, and their bits."""
