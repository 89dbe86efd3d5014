"""C++ text: tokens, expressions as trees, and where everything stands."""
