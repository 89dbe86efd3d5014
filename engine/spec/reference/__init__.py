"""What is right: the spec in float64, and what its recipe expects element by element."""
