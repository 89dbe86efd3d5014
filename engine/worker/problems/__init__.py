"""What a kernel is asked for: cases, the spec's inputs, and its values in float64."""
