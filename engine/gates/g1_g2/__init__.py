"""G1 and G2: a module judged by its recipe or by its spec's own function."""
