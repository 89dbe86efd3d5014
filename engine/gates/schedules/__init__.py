"""What is proven for all sizes: a kernel's tile schedule and its order of work."""
